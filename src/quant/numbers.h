// SPDX-License-Identifier: Apache-2.0
// Floating-point formats of one byte and less as bits, to f32 and back, rounded to the nearest even; elements of
// tensors as f32.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "tensor/stored_tensor.h"

namespace apus::quant {

inline float rounded_to_f16(float value) { return f16_to_float(float_to_f16(value)); }

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
      return f16_to_float(t.at<uint16_t>(i));
    case DiskType::BF16:
      return bf16_to_float(t.at<uint16_t>(i));
    case DiskType::F8E4M3:
      return from_e4m3(t.at<uint8_t>(i));
    case DiskType::F64:
      return static_cast<float>(t.at<double>(i));
    default:
      return t.at<float>(i);
  }
}

}  // namespace apus::quant
