// SPDX-License-Identifier: Apache-2.0
// Rows of a cache of keys and values in codes of eight bits (ops/ops.h): a head's numbers, and behind them their scale.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "devices/cpu/kernels/kernels.h"
#include "quant/numbers.h"

namespace apus::cpu {

inline float wide_number(float x) { return x; }
inline float wide_number(bf16 x) { return bf16_to_float(x); }

// The largest number becomes the largest code; a row of zeros stays one.
template <class E>
void write_coded(const E* x, int64_t h, bool whole, uint8_t* row) {
  float most = 0;
  for (int64_t i = 0; i < h; ++i) most = std::max(most, std::abs(wide_number(x[i])));
  const float scale = most / (whole ? 127.0f : quant::kMostE4m3), inverse = scale > 0 ? 1 / scale : 0;
  for (int64_t i = 0; i < h; ++i) {
    const float number = wide_number(x[i]) * inverse;
    if (whole)
      row[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::clamp(number, -127.0f, 127.0f))));
    else
      row[i] = quant::to_e4m3(std::clamp(number, -quant::kMostE4m3, quant::kMostE4m3));
  }
  std::memcpy(row + h, &scale, sizeof scale);
}

// The first `count` numbers of a row whose scale lies `scale_at` bytes behind its begin. Up to 15 more are written, and
// as many bytes read.
inline void read_coded(const uint8_t* row, int64_t count, int64_t scale_at, bool whole, bf16* out) {
  float scale;
  std::memcpy(&scale, row + scale_at, sizeof scale);
  const int64_t columns = (count + 15) / 16 * 16;
  // Kernels read FP8 codes as 2^-8 of what they stand for.
  if (whole)
    kernels().row8(columns, row, scale, out);
  else
    kernels().row_e4m3(columns, row, scale * 256, out);
}
inline void read_coded(const uint8_t* row, int64_t count, int64_t scale_at, bool whole, float* out) {
  static const std::array<float, 256> e4m3 = quant::e4m3_table();
  float scale;
  std::memcpy(&scale, row + scale_at, sizeof scale);
  for (int64_t i = 0; i < count; ++i)
    out[i] = scale * (whole ? static_cast<float>(static_cast<int8_t>(row[i])) : e4m3[row[i]]);
}

}  // namespace apus::cpu
