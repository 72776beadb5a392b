// SPDX-License-Identifier: Apache-2.0
// Small matrix products on panels (kernels.h), for the instruction set of the including file. Each element of the
// result is one chain of additions over k in rising order, whatever the number of rows: that is what makes results
// independent of the batch.
#pragma once

#if defined(__AVX512F__)
#include "devices/cpu/kernels/ahead.h"
#endif
#include "devices/cpu/kernels/transpose.h"
#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {
namespace {

constexpr int kTileColumns = 2 * kWidth;  // of one register tile: two vectors

#if !defined(__AVX512F__)
// The hardware's own prefetching has to do.
struct Ahead {
  Ahead(const bf16*, const bf16*, int64_t, int64_t, int64_t) {}
  void fetch() {}
};
#endif
constexpr int kTileRows16 = kRegisters == 32 ? 12 : 4;

// One register tile of bf16: R rows, all 32 columns; k a multiple of 32. Computed in f32: both halves of each pair
// widen by a shift or a mask, the rows beforehand.
template <int R>
void tile(int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, int64_t ldc, bool add, Ahead ahead) {
  constexpr int64_t kStretch = 128;
  float x[R][kStretch];
  for (int64_t column = 0; column < kPanel; column += kTileColumns) {
    const bf16* at = b + (column / 16) * 512 + 2 * (column % 16);
    Floats sum[R][2];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) sum[r][h] = add ? load(c + r * ldc + column + kWidth * h) : Floats{};
    for (int64_t k0 = 0; k0 < k; k0 += kStretch) {
      const int64_t n = k - k0 < kStretch ? k - k0 : kStretch;
      for (int r = 0; r < R; ++r)
        for (int64_t i = 0; i < n; i += kWidth) store(x[r] + i, load(a + r * lda + k0 + i));
      for (int64_t block = 0; block < n; block += 32, at += 1024) {
        if (column == 0) ahead.fetch();
#pragma GCC unroll 2
        for (int64_t pair = 0; pair < 16; ++pair) {
          Words w[2];
          std::memcpy(&w[0], at + 32 * pair, sizeof w[0]);
          std::memcpy(&w[1], at + 32 * pair + (kWidth == 16 ? 512 : 2 * kWidth), sizeof w[1]);
          const Floats even[2] = {(Floats)(w[0] << 16), (Floats)(w[1] << 16)};
#pragma GCC unroll 12
          for (int r = 0; r < R; ++r)
            for (int h = 0; h < 2; ++h) sum[r][h] = sum[r][h] + even[h] * splat(x[r][block + 2 * pair]);
          const Floats odd[2] = {(Floats)(w[0] & 0xffff0000u), (Floats)(w[1] & 0xffff0000u)};
#pragma GCC unroll 12
          for (int r = 0; r < R; ++r)
            for (int h = 0; h < 2; ++h) sum[r][h] = sum[r][h] + odd[h] * splat(x[r][block + 2 * pair + 1]);
        }
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) store(c + r * ldc + column + kWidth * h, sum[r][h]);
  }
}

constexpr int kTileRows32 = kRegisters == 32 ? 12 : 6;

template <int R>
void tile(int64_t k, const float* a, int64_t lda, const float* b, float* c, int64_t ldc, bool add) {
  for (int64_t column = 0; column < kPanel; column += kTileColumns) {
    Floats sum[R][2];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) sum[r][h] = add ? load(c + r * ldc + column + kWidth * h) : Floats{};
    for (int64_t i = 0; i < k; ++i) {
      const Floats b0 = load(b + i * kPanel + column), b1 = load(b + i * kPanel + column + kWidth);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const Floats x = splat(a[r * lda + i]);
        sum[r][0] = sum[r][0] + x * b0;
        sum[r][1] = sum[r][1] + x * b1;
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < 2; ++h) store(c + r * ldc + column + kWidth * h, sum[r][h]);
  }
}

template <int R, class E, class... Ask>
void tile_of(int64_t rows, int64_t k, const E* a, int64_t lda, const E* b, float* c, int64_t ldc, bool add,
             Ask... ahead) {
  if (rows == R) return tile<R>(k, a, lda, b, c, ldc, add, ahead...);
  if constexpr (R > 1) tile_of<R - 1>(rows, k, a, lda, b, c, ldc, add, ahead...);
}

template <class E>
void multiply(int64_t m, int64_t k, const E* a, int64_t lda, const E* panel, float* c, int64_t ldc, bool add,
              const E* next) {
  constexpr int kMost = sizeof(E) == 2 ? kTileRows16 : kTileRows32;
  const int64_t depth = padded_depth<E>(k), tiles = (m + kMost - 1) / kMost;
  for (int64_t t = 0, row = 0; t < tiles; ++t) {  // rows shared out evenly: 13 are 7 and 6, not 12 and 1
    const int64_t rows = (m - row + tiles - t - 1) / (tiles - t);
    if constexpr (sizeof(E) == 2)
      tile_of<kMost>(rows, depth, a + row * lda, lda, panel, c + row * ldc, ldc, add,
                     Ahead(panel, next, depth, t, tiles));
    else
      tile_of<kMost>(rows, depth, a + row * lda, lda, panel, c + row * ldc, ldc, add);
    row += rows;
  }
}

#if defined(__AVX512BF16__)
// The same with the instruction that multiplies pairs of bf16.
template <int R>
void tile_pairs(int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, int64_t ldc, bool add, Ahead ahead) {
  __m512 sum[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < 2; ++h) sum[r][h] = add ? _mm512_loadu_ps(c + r * ldc + 16 * h) : _mm512_setzero_ps();
  for (int64_t block = 0; block < k; block += 32, b += 1024) {
    ahead.fetch();
    const bf16* row[(R + 2) / 3];
    for (int i = 0; i < (R + 2) / 3; ++i) row[i] = a + 3 * i * lda + block;
#pragma GCC unroll 4
    for (int pair = 0; pair < 16; ++pair) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + 32 * pair),
                     b1 = (__m512bh)_mm512_loadu_si512(b + 512 + 32 * pair);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        int32_t two;
        std::memcpy(&two, row[r / 3] + (r % 3) * lda + 2 * pair, 4);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, b0);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, b1);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < 2; ++h) _mm512_storeu_ps(c + r * ldc + 16 * h, sum[r][h]);
}

template <int R>
void tile_pairs_of(int64_t rows, int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, int64_t ldc, bool add,
                   Ahead ahead) {
  if (rows == R) return tile_pairs<R>(k, a, lda, b, c, ldc, add, ahead);
  if constexpr (R > 1) tile_pairs_of<R - 1>(rows, k, a, lda, b, c, ldc, add, ahead);
}

void multiply_pairs(int64_t m, int64_t k, const bf16* a, int64_t lda, const bf16* panel, float* c, int64_t ldc,
                    bool add, const bf16* next) {
  const int64_t depth = padded_depth<bf16>(k), tiles = (m + kTileRows16 - 1) / kTileRows16;
  for (int64_t t = 0, row = 0; t < tiles; ++t) {
    const int64_t rows = (m - row + tiles - t - 1) / (tiles - t);
    tile_pairs_of<kTileRows16>(rows, depth, a + row * lda, lda, panel, c + row * ldc, ldc, add,
                               Ahead(panel, next, depth, t, tiles));
    row += rows;
  }
}
#endif

// Position of B[k][column] in a panel.
template <class E>
inline int64_t panel_at(int64_t k, int64_t column) {
  if constexpr (sizeof(E) == 4) return k * kPanel + column;
  return (k / 32) * 1024 + (column / 16) * 512 + (k % 32) / 2 * 32 + (column % 16) * 2 + k % 2;
}

template <class E>
void pack_columns(const E* const* rows, int64_t n, int64_t k, E* panel) {
  const int64_t depth = padded_depth<E>(k);
  for (int64_t half = 0; half < 2; ++half) {
    int64_t k0 = 0;
#if defined(__AVX512F__)
    const int64_t there = n < 16 * half ? 0 : n < 16 * (half + 1) ? n - 16 * half : 16;
    const auto* from = reinterpret_cast<const void* const*>(rows + 16 * half);
    if constexpr (sizeof(E) == 2) {
      for (; k0 + 32 <= k; k0 += 32) transpose16(from, there, 2 * k0, panel + panel_at<E>(k0, 16 * half));
    } else {
      float block[256];
      for (; k0 + 16 <= k; k0 += 16) {
        transpose16(from, there, 4 * k0, block);
        for (int i = 0; i < 16; ++i) std::memcpy(panel + (k0 + i) * kPanel + 16 * half, block + 16 * i, 64);
      }
    }
#elif defined(__AVX2__) || defined(__ARM_NEON)
    constexpr int64_t kAtOnce = 4 * kWidth / sizeof(E), kPair = 4 / sizeof(E);
    for (; k0 + kAtOnce <= k; k0 += kAtOnce)
      for (int64_t column = 16 * half; column < 16 * half + 16; column += kWidth)
        transpose_dwords(reinterpret_cast<const void* const*>(rows + column), n - column,
                         k0 * static_cast<int64_t>(sizeof(E)), panel + panel_at<E>(k0, column),
                         (panel_at<E>(kPair, 0)) * static_cast<int64_t>(sizeof(E)));
#endif
    for (; k0 < depth; ++k0)
      for (int64_t column = 16 * half; column < 16 * half + 16; ++column)
        panel[panel_at<E>(k0, column)] = column < n && k0 < k ? rows[column][k0] : E(0);
  }
}

template <class E>
void pack_rows(const E* const* rows, int64_t k, int64_t n, E* panel) {
  const int64_t depth = padded_depth<E>(k);
  int64_t k0 = 0;
  if constexpr (sizeof(E) == 4) {
    for (; k0 < k && n == kPanel; ++k0) std::memcpy(panel + k0 * kPanel, rows[k0], 4 * kPanel);
  }
#if defined(__AVX512F__)
  if constexpr (sizeof(E) == 2) {
    for (; k0 + 2 <= k && n == kPanel; k0 += 2) {  // interleave two rows of 32
      const __m512i a = _mm512_loadu_si512(rows[k0]), b = _mm512_loadu_si512(rows[k0 + 1]);
      const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
      const __m512i x = _mm512_shuffle_i32x4(low, high, 0x44), y = _mm512_shuffle_i32x4(low, high, 0xee);
      _mm512_storeu_si512(panel + panel_at<E>(k0, 0), _mm512_shuffle_i32x4(x, x, 0xd8));
      _mm512_storeu_si512(panel + panel_at<E>(k0, 16), _mm512_shuffle_i32x4(y, y, 0xd8));
    }
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(E) == 2) {
    for (; k0 + 2 <= k && n == kPanel; k0 += 2)
      for (int64_t column = 0; column < kPanel; column += 16) {
        const auto row = [&](int64_t i) {
          return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[i] + column));
        };
        const __m256i a = row(k0), b = row(k0 + 1), low = _mm256_unpacklo_epi16(a, b),
                      high = _mm256_unpackhi_epi16(a, b);
        auto* const to = reinterpret_cast<__m256i*>(panel + panel_at<E>(k0, column));
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
      }
  }
#elif defined(__ARM_NEON)
  if constexpr (sizeof(E) == 2) {
    for (; k0 + 2 <= k && n == kPanel; k0 += 2)
      for (int64_t column = 0; column < kPanel; column += 8)
        vst2q_u16(panel + panel_at<E>(k0, column),
                  uint16x8x2_t{vld1q_u16(rows[k0] + column), vld1q_u16(rows[k0 + 1] + column)});
  }
#endif
  for (; k0 < depth; ++k0)
    for (int64_t column = 0; column < kPanel; ++column)
      panel[panel_at<E>(k0, column)] = column < n && k0 < k ? rows[k0][column] : E(0);
}

// k a multiple of 32. Both elements of each pair, as tile() widens them.
inline void widen_panel(int64_t k, const bf16* panel, float* wide) {
  for (int64_t pair = 0; pair < k / 2; ++pair)
    for (int64_t column = 0; column < kPanel; column += kWidth) {
      Words w;
      std::memcpy(&w, panel + panel_at<bf16>(2 * pair, column), sizeof w);
      store(wide + 2 * pair * kPanel + column, (Floats)(w << 16));
      store(wide + (2 * pair + 1) * kPanel + column, (Floats)(w & 0xffff0000u));
    }
}
template <class E>
constexpr auto panel_widener() -> void (*)(int64_t, const E*, float*) {
  if constexpr (sizeof(E) == 2)
    return widen_panel;
  else
    return nullptr;
}

template <class E>
void finish(int64_t m, int64_t n, const float* c, int64_t ldc, const float* bias, E* y, int64_t ldy) {
  // Rows, which lie far apart: their lines are asked for before they are written.
  constexpr int64_t kAhead = 12;
  for (int64_t i = 0; i < m; ++i) {
    if (i + kAhead < m) __builtin_prefetch(y + (i + kAhead) * ldy, 1);
    int64_t j = 0;
    for (; j + kWidth <= n; j += kWidth)
      store(y + i * ldy + j, bias ? load(c + i * ldc + j) + load(bias + j) : load(c + i * ldc + j));
    for (; j < n; ++j) put(y + i * ldy + j, c[i * ldc + j] + (bias ? bias[j] : 0.0f));
  }
}

template <class E>
void widen(int64_t n, const E* x, float* y) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, load(x + i));
  for (; i < n; ++i) y[i] = one(x + i);
}

template <class E>
void narrow(int64_t n, const float* x, float scale, E* y) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, load(x + i) * scale);
  for (; i < n; ++i) put(y + i, x[i] * scale);
}

}  // namespace
}  // namespace apus::cpu
