// SPDX-License-Identifier: Apache-2.0
// One token of one head that keeps a sum of its keys and values, for the including file's level. Each column of the sum
// is a lane of its own, whose arithmetic depends on nothing but the token.
#pragma once

#include "devices/cpu/kernels/rows.h"

namespace apus::cpu {
namespace {

// C vectors of columns, from j on.
template <int C, bool whole>
inline void state_tile(int64_t j, int64_t keys, int64_t columns, const StateToken& t, float* sum, int64_t ld,
                       float* y) {
  Floats value[C], result[C];
  for (int c = 0; c < C; ++c) value[c] = get<whole>(t.v, j + c * kWidth, columns), result[c] = Floats{};
  if (t.corrects) {
    Floats known[C];
    for (int c = 0; c < C; ++c) known[c] = Floats{};
    for (int64_t k = 0; k < keys; ++k)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c)
        known[c] += get<whole>(sum + k * ld, j + c * kWidth, columns) * splat(t.decay * t.k[k]);
    for (int c = 0; c < C; ++c) value[c] = (value[c] - known[c]) * splat(t.share);
  }
  for (int64_t k = 0; k < keys; ++k)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const Floats now = get<whole>(sum + k * ld, j + c * kWidth, columns) * splat(t.decay) + value[c] * splat(t.k[k]);
      set<whole>(sum + k * ld, j + c * kWidth, columns, now);
      result[c] += now * splat(t.q[k]);
    }
  for (int c = 0; c < C; ++c) set<whole>(y, j + c * kWidth, columns, result[c]);
}

void state_token(int64_t keys, int64_t columns, const StateToken& t, float* sum, int64_t ld, float* y) {
  int64_t j = 0;
  for (; j + 4 * kWidth <= columns; j += 4 * kWidth) state_tile<4, true>(j, keys, columns, t, sum, ld, y);
  for (; j + kWidth <= columns; j += kWidth) state_tile<1, true>(j, keys, columns, t, sum, ld, y);
  if (j < columns) state_tile<1, false>(j, keys, columns, t, sum, ld, y);
}

}  // namespace
}  // namespace apus::cpu
