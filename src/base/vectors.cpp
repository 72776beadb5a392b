// SPDX-License-Identifier: Apache-2.0
// Plain loops that the compiler turns into vector code: cmake/Layers.cmake compiles this file without contraction of
// a * b + c, which would round differently from machine to machine.
#include "base/vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/every_width.h"

namespace apus::vectors {
namespace {

// 1.5 * 2^23: adding it leaves the nearest integer in the low bits.
constexpr float kRound = 12582912.0f;

// exp of -87 <= x <= 0: 2^n * e^r with |r| <= ln 2 / 2.
inline float exp_of(float x) {
  const float shifted = x * 1.44269504f + kRound, n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (std::bit_cast<int32_t>(shifted) << 23));
}

inline float clipped_exp(float x, float shift, float scale) {
  const float t = (x - shift) * scale, e = exp_of(t < -87.0f ? -87.0f : t);
  return t < -87.0f ? 0.0f : e;
}

// ln x for 2^-25 <= x <= 1: x = 2^n * m with m in [sqrt(1/2), sqrt 2).
inline float log_of(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x) - 0x3F3504F3;
  const int32_t n = bits >> 23;
  const float f = std::bit_cast<float>((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f, square = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float wide = static_cast<float>(n);
  return wide * 0.693359375f + (f + ((p * f) * square - 0.5f * square - wide * 2.12194440e-4f));
}

// sin and cos of 2 pi u for |u| <= 1/8.
inline void turn(float u, float& sine, float& cosine) {
  const float a = u * 6.28318531f, b = a * a;
  sine = a + a * b * (-1.6666654611e-1f + b * (8.3321608736e-3f + b * -1.9515295891e-4f));
  cosine = 1.0f - 0.5f * b + b * b * (4.166664568e-2f + b * (-1.388731625e-3f + b * 2.443315711e-5f));
}

inline uint32_t hash(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Two normal values from 64 bits (Box and Muller): a radius, and an angle in eighths of a turn.
inline void pair_of(uint32_t first, uint32_t second, float& x, float& y) {
  const float u = (static_cast<float>(static_cast<int32_t>(first >> 8)) + 0.5f) * 0x1p-24f;
  const float radius = std::sqrt(-2.0f * log_of(u));
  const auto quarter = static_cast<int32_t>(second >> 30);
  const float within = static_cast<float>(static_cast<int32_t>(second << 2 >> 8)) * 0x1p-26f - 0.125f;
  float s, c;
  turn(within, s, c);
  const float a = quarter & 1 ? s : c, b = quarter & 1 ? c : s, sign_a = quarter & 2 ? -radius : radius;
  const float sign_b = quarter == 1 || quarter == 2 ? -radius : radius;
  x = sign_a * a, y = sign_b * b;
}

APUS_EVERY_WIDTH void exps_of(const float* __restrict x, size_t n, float shift, float scale, float* __restrict out) {
  for (size_t i = 0; i < n; ++i) out[i] = clipped_exp(x[i], shift, scale);
}

APUS_EVERY_WIDTH double sum_of_blocks(const float* __restrict x, size_t blocks, float shift, float scale) {
  double total = 0;
  float e[kBlock];
  for (size_t block = 0; block < blocks; ++block, x += kBlock) {
    for (size_t i = 0; i < kBlock; ++i) e[i] = clipped_exp(x[i], shift, scale);
    for (size_t half = kBlock / 2; half >= 16; half /= 2)
      for (size_t i = 0; i < half; ++i) e[i] += e[i + half];
    for (size_t i = 0; i < 16; ++i) total += static_cast<double>(e[i]);
  }
  return total;
}

// Per lane, because a maximum in order is no vector code. A NaN is not above anything: it is counted instead.
APUS_EVERY_WIDTH float largest_of(const float* __restrict x, size_t blocks) {
  constexpr size_t kLanes = 64;
  float high[kLanes];
  int32_t strange[kLanes] = {};
  std::fill_n(high, kLanes, -std::numeric_limits<float>::infinity());
  for (size_t block = 0; block < blocks; ++block, x += kLanes)
    for (size_t i = 0; i < kLanes; ++i) {
      high[i] = x[i] > high[i] ? x[i] : high[i];
      strange[i] |= x[i] != x[i];
    }
  float all = high[0];
  int32_t any = 0;
  for (size_t i = 0; i < kLanes; ++i) all = std::max(all, high[i]), any |= strange[i];
  return any ? std::numeric_limits<float>::quiet_NaN() : all;
}

APUS_EVERY_WIDTH void normals_of(uint32_t low, uint32_t high, float* __restrict x, float* __restrict y, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    const uint32_t place = 2 * static_cast<uint32_t>(i);
    pair_of(hash(hash(place + low) ^ high), hash(hash(place + 1 + low) ^ high), x[i], y[i]);
  }
}

}  // namespace

float largest(std::span<const float> x) {
  const size_t blocks = x.size() / 64;
  float high = largest_of(x.data(), blocks);
  for (size_t i = blocks * 64; i < x.size(); ++i)
    high = std::isnan(high) || std::isnan(x[i]) ? std::numeric_limits<float>::quiet_NaN() : std::max(high, x[i]);
  return high;
}

void exps(std::span<const float> x, float shift, float scale, float* out) {
  exps_of(x.data(), x.size(), shift, scale, out);
}

double sum_of_exps(std::span<const float> x, float shift, float scale) {
  const size_t blocks = x.size() / kBlock, rest = x.size() % kBlock;
  double total = sum_of_blocks(x.data(), blocks, shift, scale);
  if (rest) {
    float filled[kBlock];
    std::fill_n(filled, kBlock, -std::numeric_limits<float>::infinity());
    std::copy_n(x.data() + blocks * kBlock, rest, filled);
    total += sum_of_blocks(filled, 1, shift, scale);
  }
  return total;
}

// A pair's two values stand `half` apart, so that both are written in a row.
void normals(uint64_t key, std::span<float> out) {
  const size_t half = out.size() / 2;
  const auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  normals_of(low, high, out.data(), out.data() + half, half);
  if (out.size() % 2) {
    float unused;
    normals_of(low + 2 * static_cast<uint32_t>(half), high, &out.back(), &unused, 1);
  }
}

APUS_EVERY_WIDTH void add_scaled(std::span<const uint8_t> x, int32_t by, int32_t* sums) {
  for (size_t i = 0; i < x.size(); ++i) sums[i] += x[i] * by;
}

APUS_EVERY_WIDTH void bytes_of(std::span<const int32_t> sums, int shift, uint8_t* out) {
  for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<uint8_t>(std::clamp(sums[i] >> shift, 0, 255));
}

}  // namespace apus::vectors
