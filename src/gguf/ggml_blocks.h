// SPDX-License-Identifier: Apache-2.0
// What reading and writing of ggml's blocks share: numbers at bytes, and tables. No tensor library.
#pragma once

#include <algorithm>
#include <bit>
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

// The nearest whole number, ties to even; |x| < 2^22.
inline int nearest(float x) {
  const auto bits = std::bit_cast<int32_t>(x + 12582912.0F);
  return (bits & 0x007FFFFF) - 0x00400000;
}

inline float signed_largest(const float* x, int64_t n) {  // the first of those
  float size = 0, found = 0;
  for (int64_t i = 0; i < n; ++i)
    if (std::fabs(x[i]) > size) size = std::fabs(x[i]), found = x[i];
  return found;
}

inline float inverse(float d) { return d != 0 ? 1 / d : 0; }

struct Extent {
  float least, most;
};
inline Extent extent(const float* x) {
  const auto [least, most] = std::minmax_element(x, x + kSmall);
  return {*least, *most};
}

// Writers of blocks; `importance`: of each number, how much its error matters; null: not known.
void write_q4_k(const float* x, const float* importance, std::byte* b);
void write_q5_k(const float* x, const float* importance, std::byte* b);
void write_q6_k(const float* x, const float* importance, std::byte* b);
void write_iq4_nl(const float* x, const float* importance, std::byte* b);
void write_iq4_xs(const float* x, const float* importance, std::byte* b);

// Blocks of 256 of the IQ formats (ggml_read_iq.cpp).
void read_iq2_xxs(const std::byte* b, float* out);
void read_iq2_xs(const std::byte* b, float* out);
void read_iq2_s(const std::byte* b, float* out);
void read_iq3_xxs(const std::byte* b, float* out);
void read_iq3_s(const std::byte* b, float* out);
void read_iq1_s(const std::byte* b, float* out);
void read_iq1_m(const std::byte* b, float* out);
void read_iq4_xs(const std::byte* b, float* out);

}  // namespace apus::ggml
