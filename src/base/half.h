// SPDX-License-Identifier: Apache-2.0
// Numbers of two bytes, as bits, without a tensor library. Rounding is to the nearest, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace apus {

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float size = static_cast<float>(fraction) * 0x1p-24F;
  return sign ? -size : size;
}

inline uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000) return sign | 0x7E00;   // NaN
  if (size >= 0x477FF000) return sign | 0x7C00;  // 65520 and above become infinite
  // Below 2^-14: adding 0.5 leaves the multiples of 2^-24 in the last bits, rounded as additions are.
  if (size < 0x38800000) return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(std::fabs(value) + 0.5F) & 0x7FF);
  const uint32_t rounded = size + 0xFFF + (size >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

}  // namespace apus
