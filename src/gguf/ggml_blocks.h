// SPDX-License-Identifier: Apache-2.0
// What reading and writing of ggml's blocks share: numbers at bytes, and tables. No tensor library.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace apus::ggml {

inline constexpr int64_t kSmall = 32, kSuper = 256;  // numbers of a block, of a super-block

inline uint8_t byte_at(const std::byte* p, int64_t i) { return static_cast<uint8_t>(p[i]); }
inline void put(std::byte* p, int64_t i, int value) { p[i] = static_cast<std::byte>(value); }
inline float half_at(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return f16_to_float(bits);
}
// Gives back what a reader will see.
inline float put_half(std::byte* p, float value) {
  const uint16_t bits = float_to_f16(value);
  std::memcpy(p, &bits, sizeof bits);
  return f16_to_float(bits);
}

// Twice the values of E2M1 by nibble; the scale beside them is halved for it.
inline constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
inline float half_e8m0(uint8_t exponent) { return std::ldexp(1.0F, int{exponent} - 128); }

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Scale and minimum of sub-block j (of 8) of Q4_K and Q5_K, six bits each, in 12 bytes.
struct SubBlock {
  int scale, minimum;
};
inline SubBlock sub_block(const std::byte* b, int j) {
  if (j < 4) return {byte_at(b, j) & 63, byte_at(b, j + 4) & 63};
  return {(byte_at(b, j + 4) & 15) | (byte_at(b, j - 4) >> 6) << 4, (byte_at(b, j + 4) >> 4) | (byte_at(b, j) >> 6)
                                                                                                   << 4};
}

}  // namespace apus::ggml
