// SPDX-License-Identifier: Apache-2.0
// IQ4_NL and IQ4_XS: sixteen levels that lie closer around zero. Each 32 numbers try several scales and keep the one
// whose weighted squared error is least; the bytes are those of ggml's quantisers.
#include <algorithm>
#include <array>

#include "gguf/ggml_blocks.h"

namespace apus::ggml {

namespace {

constexpr float kNothing = 1e-15F;  // numbers below it are zero
constexpr int kTries = 7;           // on each side

int nearest_value(float x) {
  if (x <= kIq4Values[0]) return 0;
  if (x >= kIq4Values[15]) return 15;
  int low = 0, high = 15;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (x < kIq4Values[middle] ? high : low) = middle;
  }
  return x - kIq4Values[high - 1] < kIq4Values[high] - x ? high - 1 : high;
}

// The scale of 32 numbers. `spread` is twice the mean square of the block.
float scale_of(const float* x, const float* importance, float spread) {
  const float most = signed_largest(x, kSmall);
  if (std::fabs(most) < kNothing) return 0;
  std::array<float, kSmall> weight;
  for (int j = 0; j < kSmall; ++j)
    weight[j] = importance ? importance[j] * std::sqrt(spread + x[j] * x[j]) : x[j] * x[j];
  float sum_xq = 0, sum_qq = 0;
  const auto attempt = [&](float per_number) {
    sum_xq = sum_qq = 0;
    for (int j = 0; j < kSmall; ++j) {
      const auto q = static_cast<float>(kIq4Values[nearest_value(per_number * x[j])]);
      sum_xq += weight[j] * q * x[j];
      sum_qq += weight[j] * q * q;
    }
  };
  const float first = -most / kIq4Values[0];
  attempt(1 / first);
  float scale = sum_qq > 0 ? sum_xq / sum_qq : 0, best = scale * sum_xq;
  for (int k = -kTries; k <= kTries; ++k) {
    attempt(static_cast<float>(k + kIq4Values[0]) / most);
    if (sum_qq > 0 && sum_xq * sum_xq > best * sum_qq) scale = sum_xq / sum_qq, best = scale * sum_xq;
  }
  return scale;
}

float spread_of(const float* x, int64_t count) {
  float squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += x[i] * x[i];
  return squares * (2.0F / static_cast<float>(count));
}

void put_values(const float* x, float per_number, std::byte* q) {
  for (int j = 0; j < 16; ++j) put(q, j, nearest_value(per_number * x[j]) | nearest_value(per_number * x[j + 16]) << 4);
}

}  // namespace

void write_iq4_nl(const float* x, const float* importance, std::byte* b) {
  const float scale = scale_of(x, importance, spread_of(x, kSmall));
  put_half(b, scale);
  put_values(x, inverse(scale), b + 2);
}

void write_iq4_xs(const float* x, const float* importance, std::byte* b) {
  const float spread = spread_of(x, kSuper);
  std::array<float, 8> scales;
  for (int j = 0; j < 8; ++j)
    scales[static_cast<size_t>(j)] = scale_of(x + 32 * j, importance ? importance + 32 * j : nullptr, spread);
  const float d = -signed_largest(scales.data(), 8) / 32, id = inverse(d);
  put_half(b, d);
  int high = 0;
  std::array<int, 8> low;
  for (int j = 0; j < 8; ++j) {
    const int level = std::clamp(nearest(id * scales[static_cast<size_t>(j)]), -32, 31);
    put_values(x + 32 * j, inverse(d * static_cast<float>(level)), b + 8 + 16 * j);
    low[static_cast<size_t>(j)] = (level + 32) & 15, high |= ((level + 32) >> 4) << 2 * j;
  }
  put(b, 2, high & 255), put(b, 3, high >> 8);
  for (size_t j = 0; j < 4; ++j) put(b, 4 + static_cast<int64_t>(j), low[2 * j] | low[2 * j + 1] << 4);
}

}  // namespace apus::ggml
