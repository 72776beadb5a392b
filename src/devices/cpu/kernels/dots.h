// SPDX-License-Identifier: Apache-2.0
// Products of weights where they lie: c = x W' with the rows of W as a file holds them, so that nothing is copied or
// rearranged before the first token. Every sum is kept in the lanes of one vector, each lane adding its own k in rising
// order; after each kDotStretch of k the lanes are added in a fixed order, and the totals in rising order: whatever the
// number of rows.
#pragma once

#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {
namespace {

constexpr int kDotRows = kRegisters == 32 ? 6 : 3, kDotColumns = kRegisters == 32 ? 4 : 3;  // of a register tile
constexpr int64_t kDotAhead = 16;  // rows of weights: how far ahead memory is asked for them

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The lanes of each of C sums, added.
template <int C>
inline void add_lanes(const Floats* sum, float* out) {
#if defined(__AVX512F__)
  const auto v = [&](int i) { return (__m512)sum[i < C ? i : 0]; };
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v(0), v(1)), _mm512_unpackhi_ps(v(0), v(1)));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v(2), v(3)), _mm512_unpackhi_ps(v(2), v(3)));
  const __m512 all = _mm512_add_ps((__m512)_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd),
                                   (__m512)_mm512_unpackhi_pd((__m512d)ab, (__m512d)cd));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  float totals[4];
  _mm_storeu_ps(totals, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  for (int j = 0; j < C; ++j) out[j] = totals[j];
#elif defined(__ARM_NEON)
  const auto v = [&](int i) { return (float32x4_t)sum[i < C ? i : 0]; };
  float totals[4];
  vst1q_f32(totals, vpaddq_f32(vpaddq_f32(v(0), v(1)), vpaddq_f32(v(2), v(3))));
  for (int j = 0; j < C; ++j) out[j] = totals[j];
#else
  for (int j = 0; j < C; ++j) out[j] = total(sum[j]);
#endif
}

// Ways to multiply. kStep: elements of k taken at once. `step` reads x in a form of kFloats floats of memory a step.
struct F32 {
  using E = float;
  static constexpr int64_t kStep = kWidth, kFloats = kWidth;
  static void lay_out(const float* x, float* y) { std::memcpy(y, x, sizeof(float) * kStep); }
  template <int R, int C>
  static void step(const float* x, int64_t ldx, const float* w, int64_t ldw, Floats (*sum)[C]) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Floats row = load(x + r * ldx);
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) sum[r][j] += load(w + j * ldw) * row;
    }
  }
};

// bf16 in f32, two elements to a lane: even ones widen by a shift, odd ones by a mask;
// x is laid out like that beforehand.
struct Widened {
  using E = bf16;
  static constexpr int64_t kStep = 2 * kWidth, kFloats = 2 * kWidth;
  static Words words(const bf16* p) {
    Words v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void lay_out(const bf16* x, float* y) {
    store(y, (Floats)(words(x) << 16));
    store(y + kWidth, (Floats)(words(x) & 0xffff0000u));
  }
  template <int R, int C>
  static void step(const float* x, int64_t ldx, const bf16* w, int64_t ldw, Floats (*sum)[C]) {
    Floats half[C];
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) half[j] = (Floats)(words(w + j * ldw) << 16);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Floats even = load(x + r * ldx);
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) sum[r][j] += half[j] * even;
    }
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j)
      half[j] = (Floats)(words(w + j * ldw) & 0xffff0000u);  // loaded again: registers are scarcer than loads
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Floats odd = load(x + r * ldx + kWidth);
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) sum[r][j] += half[j] * odd;
    }
  }
};

#if defined(__AVX512BF16__)
// bf16 by vdpbf16ps.
struct Pairs {
  using E = bf16;
  static constexpr int64_t kStep = 32, kFloats = 16;
  static void lay_out(const bf16* x, float* y) { std::memcpy(y, x, sizeof(bf16) * kStep); }
  template <int R, int C>
  static void step(const float* x, int64_t ldx, const bf16* w, int64_t ldw, Floats (*sum)[C]) {
    __m512bh column[C];
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) column[j] = (__m512bh)_mm512_loadu_si512(w + j * ldw);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512bh row = (__m512bh)_mm512_loadu_ps(x + r * ldx);
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) sum[r][j] = (Floats)_mm512_dpbf16_ps((__m512)sum[r][j], row, column[j]);
    }
  }
};
#endif

// The last elements of k, filled with zeros.
template <class Way, int R, int C>
inline void dot_rest(int64_t k, const float* x, int64_t ldx, const typename Way::E* w, int64_t ldw, Floats (*sum)[C]) {
  typename Way::E filled[C][Way::kStep] = {};
  for (int j = 0; j < C; ++j)
    for (int64_t i = 0; i < k; ++i) filled[j][i] = w[j * ldw + i];
  Way::template step<R, C>(x, ldx, filled[0], Way::kStep, sum);
}

// c [R, C] (+)= x . w over k <= kDotStretch. Meanwhile memory is asked for the rows from `ask` to `until` of those C
// that come kDotAhead later.
template <class Way, int R, int C>
void dot_tile(int64_t k, const float* x, int64_t ldx, const typename Way::E* w, int64_t ldw, float* c, int64_t ldc,
              bool add, int ask, int until) {
  Floats sum[R][C] = {};
  int64_t i = 0;
  for (; i + Way::kStep <= k; i += Way::kStep, x += Way::kFloats) {
    for (int j = ask; j < until; ++j) __builtin_prefetch(w + (j + kDotAhead) * ldw + i, 0, 2);
    Way::template step<R, C>(x, ldx, w + i, ldw, sum);
  }
  if (i < k) dot_rest<Way, R, C>(k - i, x, ldx, w + i, ldw, sum);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    float totals[C];
    add_lanes<C>(sum[r], totals);
    for (int j = 0; j < C; ++j) c[r * ldc + j] = add ? c[r * ldc + j] + totals[j] : totals[j];
  }
}

// R rows of x by n rows of w. `pass` of `passes` over them.
template <class Way, int R>
void dot_rows(int64_t rows, int64_t n, int64_t k, const float* x, int64_t ldx, const typename Way::E* w, int64_t ldw,
              float* c, int64_t ldc, bool add, int64_t pass, int64_t passes, bool more) {
  if (rows < R) {
    if constexpr (R > 1) dot_rows<Way, R - 1>(rows, n, k, x, ldx, w, ldw, c, ldc, add, pass, passes, more);
    return;
  }
  // The first passes ask for one row each; a single pass asks for all.
  const int64_t each = (kDotColumns + passes - 1) / passes;
  const int ask = more ? static_cast<int>(smaller(pass * each, kDotColumns)) : 0,
            until = more ? static_cast<int>(smaller(ask + each, kDotColumns)) : 0;
  int64_t j = 0;
  for (; j + kDotColumns <= n; j += kDotColumns)
    dot_tile<Way, R, kDotColumns>(k, x, ldx, w + j * ldw, ldw, c + j, ldc, add, ask, until);
  for (; j < n; ++j) dot_tile<Way, R, 1>(k, x, ldx, w + j * ldw, ldw, c + j, ldc, add, 0, 0);
}

// One row of x: w is read as it lies, which is how memory is fastest.
template <class Way>
void dot_line(int64_t n, int64_t k, const float* x, const typename Way::E* w, int64_t ldw, float* c) {
  constexpr int64_t kNear = 4096 / sizeof(*w);
  for (int64_t j = 0; j < n; ++j, w += ldw) {
    const bool ask = (n - j - 1) * ldw >= kNear;  // what comes after may be another thread's
    for (int64_t begin = 0; begin < k; begin += kDotStretch) {
      const int64_t end = smaller(k, begin + kDotStretch);
      const float* at = x + begin / Way::kStep * Way::kFloats;
      Floats sum[1][1] = {};
      int64_t i = begin;
      for (; i + Way::kStep <= end; i += Way::kStep, at += Way::kFloats) {
        if (ask) __builtin_prefetch(w + i + kNear, 0, 3);
        Way::template step<1, 1>(at, 0, w + i, 0, sum);
      }
      if (i < end) dot_rest<Way, 1, 1>(end - i, at, 0, w + i, 0, sum);
      float total;
      add_lanes<1>(sum[0], &total);
      c[j] = begin > 0 ? c[j] + total : total;
    }
  }
}

// Fills up with zeros to a whole step.
template <class Way>
void lay_out(int64_t k, const typename Way::E* x, float* y) {
  int64_t i = 0;
  for (; i + Way::kStep <= k; i += Way::kStep, y += Way::kFloats) Way::lay_out(x + i, y);
  if (i == k) return;
  typename Way::E filled[Way::kStep] = {};
  std::memcpy(filled, x + i, sizeof(*x) * (k - i));
  Way::lay_out(filled, y);
}

template <class Way>
void dots(int64_t m, int64_t n, int64_t k, const typename Way::E* x, int64_t ldx, const typename Way::E* w, int64_t ldw,
          float* c, int64_t ldc, float* space) {
  if (m == 1) {
    lay_out<Way>(k, x, space);
    return dot_line<Way>(n, k, space, w, ldw, c);
  }
  for (int64_t begin = 0; begin < k; begin += kDotStretch)
    for (int64_t batch = 0; batch < m; batch += kDotBatch) {
      const int64_t depth = smaller(k - begin, kDotStretch), in_batch = smaller(m - batch, kDotBatch);
      for (int64_t r = 0; r < in_batch; ++r)
        lay_out<Way>(depth, x + (batch + r) * ldx + begin, space + r * kDotStretch);
      const int64_t tiles = (in_batch + kDotRows - 1) / kDotRows;
      // Rows shared out evenly: 7 are 4 and 3, not 6 and 1.
      for (int64_t j = 0; j < n; j += kDotAhead)
        for (int64_t t = 0, row = 0; t < tiles; ++t) {
          const int64_t rows = (in_batch - row + tiles - t - 1) / (tiles - t);
          dot_rows<Way, kDotRows>(rows, smaller(kDotAhead, n - j), depth, space + row * kDotStretch, kDotStretch,
                                  w + j * ldw + begin, ldw, c + (batch + row) * ldc + j, ldc, begin > 0, t, tiles,
                                  batch == 0 && j + 2 * kDotAhead <= n);
          row += rows;
        }
    }
}

}  // namespace
}  // namespace apus::cpu
