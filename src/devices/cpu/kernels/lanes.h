// SPDX-License-Identifier: Apache-2.0
// The sums of dots.h (bf16 in f32, 16 lanes), bit for bit, for many rows of x: a lane of a vector is an output here,
// not a place in k, so nothing is added across lanes and each weight is widened once for all rows. What dots.h sums in
// lane l of one vector, the elements 2 l and 2 l + 1 of each 32, is summed here in a vector of its own, and these
// vectors are added as it adds lanes.
#pragma once

#include "devices/cpu/kernels/dots.h"
#include "devices/cpu/kernels/transpose.h"

namespace apus::cpu {
namespace {

constexpr int kLanes = 16, kLaneRows = 12;  // rows of a register tile, by two vectors of outputs
// add_lanes adds ((0 + 2) + (1 + 3)) of each four lanes, then fours 0 and 2, and 1 and 3, then these two. In this order
// of lanes, all that are added to each other are neighbours.
constexpr int kLaneOrder[kLanes] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};

// 32 elements at x, or the `left` there are and zeros, which then lie in `filled`.
inline const bf16* filled_up(const bf16* x, int64_t left, bf16* filled) {
  if (left >= 32) return x;
  std::memset(filled, 0, sizeof(bf16) * 32);
  std::memcpy(filled, x, sizeof(bf16) * left);
  return filled;
}

// A row of x as lane_tile reads it: of each kDotStretch of k, [16 lanes][steps of 32][2].
inline void spread_row(int64_t k, const bf16* x, float* y) {
  for (int64_t begin = 0; begin < k; begin += kDotStretch) {
    const int64_t depth = smaller(k - begin, kDotStretch), steps = (depth + 31) / 32;
    for (int64_t step = 0; step < steps; step += 16) {  // 16 steps are the rows that are turned
      const int64_t n = smaller(16, steps - step);
      const void* from[16];
      bf16 filled[32];
      for (int64_t i = 0; i < n; ++i) from[i] = filled_up(x + begin + 32 * (step + i), depth - 32 * (step + i), filled);
      bf16 turned[kLanes][32];
      transpose16(from, n, 0, turned);
      for (int lane = 0; lane < kLanes; ++lane) {
        float* to = y + begin + 2 * (lane * steps + step);
        int64_t i = 0;
        for (; i + kWidth <= 2 * n; i += kWidth) store(to + i, load(turned[lane] + i));
        for (; i < 2 * n; ++i) to[i] = one(turned[lane] + i);
      }
    }
  }
}

// n <= 32 rows of w as a panel, [16 lanes][steps of 32][2][32 outputs].
inline void spread_weights(int64_t n, int64_t k, const bf16* w, int64_t ldw, float* panel) {
  const int64_t steps = (k + 31) / 32;
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t there = n < 16 * half ? 0 : smaller(16, n - 16 * half);
      const void* from[16];
      bf16 filled[16][32];
      for (int64_t i = 0; i < there; ++i)
        from[i] = filled_up(w + (16 * half + i) * ldw + 32 * step, k - 32 * step, filled[i]);
      Words turned[kLanes];
      transpose16(from, there, 0, turned);
      for (int lane = 0; lane < kLanes; ++lane) {
        float* to = panel + (lane * steps + step) * 2 * kPanel + 16 * half;
        store(to, (Floats)(turned[lane] << 16));
        store(to + kPanel, (Floats)(turned[lane] & 0xffff0000u));
      }
    }
}

// c [R, 32] (+)= R rows of x, spread, by a panel.
template <int R>
void lane_tile(int64_t steps, const float* x, int64_t ldx, const float* panel, float* c, bool add) {
  float stack[4][R][2][16];  // sums that wait for their neighbours
  for (int i = 0; i < kLanes; ++i) {
    Floats sum[R][2] = {};
    const int64_t begin = kLaneOrder[i] * steps;
    const float* w = panel + begin * 2 * kPanel;
    const float* row[(R + 2) / 3];
    for (int j = 0; j < (R + 2) / 3; ++j) row[j] = x + 3 * j * ldx + 2 * begin;
    for (int64_t step = 0; step < steps; ++step, w += 2 * kPanel) {
#pragma GCC unroll 2
      for (int e = 0; e < 2; ++e) {
        const Floats low = load(w + e * kPanel), high = load(w + e * kPanel + 16);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
          const Floats factor = splat(row[r / 3][r % 3 * ldx + e]);
          sum[r][0] += low * factor;
          sum[r][1] += high * factor;
        }
      }
      for (int j = 0; j < (R + 2) / 3; ++j) row[j] += 2;
    }
    int waiting = __builtin_popcount(static_cast<unsigned>(i));
    for (int merges = __builtin_ctz(static_cast<unsigned>(i) + 1); merges > 0; --merges) {
      --waiting;
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r)
        for (int h = 0; h < 2; ++h) sum[r][h] = load(stack[waiting][r][h]) + sum[r][h];
    }
    const bool last = i + 1 == kLanes;
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) {
        float* to = last ? c + r * kPanel + 16 * h : stack[waiting][r][h];
        store(to, last && add ? load(to) + sum[r][h] : sum[r][h]);
      }
  }
}

template <int R>
void lane_tile_of(int64_t rows, int64_t steps, const float* x, int64_t ldx, const float* panel, float* c, bool add) {
  if (rows == R) return lane_tile<R>(steps, x, ldx, panel, c, add);
  if constexpr (R > 1) lane_tile_of<R - 1>(rows, steps, x, ldx, panel, c, add);
}

void lanes(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const bf16* w, int64_t ldw, float* c,
           float* space) {
  for (int64_t begin = 0; begin < k; begin += kDotStretch) {
    const int64_t depth = smaller(k - begin, kDotStretch), tiles = (m + kLaneRows - 1) / kLaneRows;
    spread_weights(n, depth, w + begin, ldw, space);
    for (int64_t t = 0, row = 0; t < tiles; ++t) {
      const int64_t rows = (m - row + tiles - t - 1) / (tiles - t);
      lane_tile_of<kLaneRows>(rows, (depth + 31) / 32, x + row * ldx + begin, ldx, space, c + row * kPanel, begin > 0);
      row += rows;
    }
  }
}

}  // namespace
}  // namespace apus::cpu
