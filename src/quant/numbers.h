// SPDX-License-Identifier: Apache-2.0
// Small floating-point formats as bits, to f32 and back, rounded to the nearest even.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/stored_tensor.h"

namespace apus::quant {

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_f16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, bits = half & 0x7fffu;
  if (bits >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (bits << 13));
  // The exponent's bias is made good by a product, which subnormal numbers take part in.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(bits << 13) * 0x1p112f));
}

inline uint16_t to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits >= 0x477ff000u) return sign | 0x7c00u;  // from 65520 on
  if (bits < 0x38800000u)                          // subnormal: 0.5 has the same unit in the last place
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3f000000u);
  bits += 0xfffu + ((bits >> 13) & 1u);
  return sign | static_cast<uint16_t>((bits - 0x38000000u) >> 13);
}

inline float rounded_to_f16(float value) { return from_f16(to_f16(value)); }

// E4M3 without infinities: sign, four bits of exponent with bias 7, three of mantissa; 0x7f and 0xff are no numbers.
constexpr float kMostE4m3 = 448;

inline float from_e4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(code & 0x80 ? 0xffc00000u : 0x7fc00000u);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

// Above 464 no number: it does not saturate.
inline uint8_t to_e4m3(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  bits &= 0x7fffffffu;
  if (bits > 0x43e80000u) return sign | 0x7fu;  // 464
  if (bits < 0x3c800000u)                       // below 2^-6: steps of 2^-9
    return sign | static_cast<uint8_t>(std::nearbyint(std::bit_cast<float>(bits) * 512));
  bits += 0x7ffffu + ((bits >> 20) & 1u);
  return sign | static_cast<uint8_t>((bits >> 20) - (120u << 3));
}

inline std::array<float, 256> e4m3_table() {
  std::array<float, 256> table;
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = from_e4m3(static_cast<uint8_t>(i));
  return table;
}

// Element i of a tensor of any floating type.
inline float number_at(const StoredTensor& t, int64_t i) {
  switch (t.type) {
    case DiskType::F16:
      return from_f16(t.at<uint16_t>(i));
    case DiskType::BF16:
      return from_bf16(t.at<uint16_t>(i));
    case DiskType::F8E4M3:
      return from_e4m3(t.at<uint8_t>(i));
    case DiskType::F64:
      return static_cast<float>(t.at<double>(i));
    default:
      return t.at<float>(i);
  }
}

}  // namespace apus::quant
