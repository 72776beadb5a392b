// SPDX-License-Identifier: Apache-2.0
// Tokens of one head that keeps a sum of its keys and values, for the including file's level. Each column of the sum
// is a lane of its own, whose arithmetic depends on nothing but the tokens.
#pragma once

#include "devices/cpu/kernels/rows.h"

namespace apus::cpu {
namespace {

// C vectors of columns, from j on. The sum is read once a token: what the next token's key finds in it is added up
// while this token is written.
template <int C, bool whole>
inline void state_tile(int64_t j, int64_t keys, int64_t columns, const StateTokens& t, float* sum, int64_t ld, float* y,
                       int64_t ldy) {
  Floats found[C];
  for (int c = 0; c < C; ++c) found[c] = Floats{};
  if (t.share)
    for (int64_t i = 0; i < keys; ++i)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) found[c] += get<whole>(sum + i * ld, j + c * kWidth, columns) * splat(t.k[i]);
  for (int64_t n = 0; n < t.count; ++n) {
    const float *const q = t.q + n * t.q_step, *const k = t.k + n * t.k_step;
    const float* const next = t.share && n + 1 < t.count ? k + t.k_step : nullptr;
    const Floats decay = splat(t.decay[n]);
    Floats value[C], result[C];
    for (int c = 0; c < C; ++c) {
      value[c] = get<whole>(t.v + n * t.v_step, j + c * kWidth, columns);
      if (t.share) value[c] = (value[c] - found[c] * decay) * splat(t.share[n]);
      result[c] = found[c] = Floats{};
    }
    const auto walk = [&](auto looks_ahead) {
      for (int64_t i = 0; i < keys; ++i) {
        // Read before anything is written: the compiler cannot know that these are not part of the sum.
        const Floats key = splat(k[i]), query = splat(q[i]), ahead = looks_ahead ? splat(next[i]) : Floats{};
        float* const row = sum + i * ld;
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          const Floats now = get<whole>(row, j + c * kWidth, columns) * decay + value[c] * key;
          set<whole>(row, j + c * kWidth, columns, now);
          result[c] += now * query;
          if constexpr (decltype(looks_ahead)::value) found[c] += now * ahead;
        }
      }
    };
    next ? walk(std::true_type{}) : walk(std::false_type{});
    for (int c = 0; c < C; ++c) set<whole>(y + n * ldy, j + c * kWidth, columns, result[c]);
  }
}

void state_tokens(int64_t keys, int64_t columns, const StateTokens& t, float* sum, int64_t ld, float* y, int64_t ldy) {
  int64_t j = 0;
  for (; j + 4 * kWidth <= columns; j += 4 * kWidth) state_tile<4, true>(j, keys, columns, t, sum, ld, y, ldy);
  for (; j + kWidth <= columns; j += kWidth) state_tile<1, true>(j, keys, columns, t, sum, ld, y, ldy);
  if (j < columns) state_tile<1, false>(j, keys, columns, t, sum, ld, y, ldy);
}

}  // namespace
}  // namespace apus::cpu
