// SPDX-License-Identifier: Apache-2.0
// Products with a short side of a few rows or columns (LoRA's rank), for the including file's level: what moves is the
// long side, once.
#pragma once

#include "devices/cpu/kernels/rows.h"

namespace apus::cpu {
namespace {

// R rows, from column j on: y = (add ? y : 0) + h b, one or two vectors of columns.
template <int R, int C, bool whole, class E>
inline void outer_tile(int64_t j, int64_t n, int64_t r, const float* h, int64_t ldh, const float* b, int64_t ldb,
                       bool add, E* y, int64_t ldy) {
  Floats sum[R][C];
#pragma GCC unroll 4
  for (int i = 0; i < R; ++i)
    for (int c = 0; c < C; ++c) sum[i][c] = add ? get<whole>(y + i * ldy, j + c * kWidth, n) : Floats{};
  for (int64_t k = 0; k < r; ++k) {
    Floats column[C];
    for (int c = 0; c < C; ++c) column[c] = get<whole>(b + k * ldb, j + c * kWidth, n);
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i)
      for (int c = 0; c < C; ++c) sum[i][c] += column[c] * splat(h[i * ldh + k]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < R; ++i)
    for (int c = 0; c < C; ++c) set<whole>(y + i * ldy, j + c * kWidth, n, sum[i][c]);
}

template <int R, class E>
void outer_rows(int64_t n, int64_t r, const float* h, int64_t ldh, const float* b, int64_t ldb, bool add, E* y,
                int64_t ldy) {
  int64_t j = 0;
  for (; j + 2 * kWidth <= n; j += 2 * kWidth) outer_tile<R, 2, true>(j, n, r, h, ldh, b, ldb, add, y, ldy);
  for (; j + kWidth <= n; j += kWidth) outer_tile<R, 1, true>(j, n, r, h, ldh, b, ldb, add, y, ldy);
  if (j < n) outer_tile<R, 1, false>(j, n, r, h, ldh, b, ldb, add, y, ldy);
}

template <class E>
void add_outer(int64_t m, int64_t n, int64_t r, const float* h, int64_t ldh, const float* b, int64_t ldb, bool add,
               E* y, int64_t ldy) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) outer_rows<4>(n, r, h + i * ldh, ldh, b, ldb, add, y + i * ldy, ldy);
  for (; i < m; ++i) outer_rows<1>(n, r, h + i * ldh, ldh, b, ldb, add, y + i * ldy, ldy);
}

// Four rows of sums, over m rows of x.
template <int C, bool whole, class E>
inline void sum_tile(int64_t j, int64_t m, int64_t n, const float* h, int64_t ldh, const E* x, int64_t ldx, float* sums,
                     int64_t lds) {
  Floats sum[4][C];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    for (int c = 0; c < C; ++c) sum[i][c] = get<whole>(sums + i * lds, j + c * kWidth, n);
  for (int64_t t = 0; t < m; ++t) {
    if (t + 8 < m) __builtin_prefetch(x + (t + 8) * ldx + j);
    Floats column[C];
    for (int c = 0; c < C; ++c) column[c] = get<whole>(x + t * ldx, j + c * kWidth, n);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      for (int c = 0; c < C; ++c) sum[i][c] += column[c] * splat(h[t * ldh + i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    for (int c = 0; c < C; ++c) set<whole>(sums + i * lds, j + c * kWidth, n, sum[i][c]);
}

template <class E>
void outer_sums(int64_t m, int64_t n, int64_t r, const float* h, int64_t ldh, const E* x, int64_t ldx, float* sums,
                int64_t lds) {
  for (int64_t i = 0; i < r; i += 4) {
    const float* column = h + i;
    float* to = sums + i * lds;
    int64_t j = 0;
    for (; j + 2 * kWidth <= n; j += 2 * kWidth) sum_tile<2, true>(j, m, n, column, ldh, x, ldx, to, lds);
    for (; j + kWidth <= n; j += kWidth) sum_tile<1, true>(j, m, n, column, ldh, x, ldx, to, lds);
    if (j < n) sum_tile<1, false>(j, m, n, column, ldh, x, ldx, to, lds);
  }
}

}  // namespace
}  // namespace apus::cpu
