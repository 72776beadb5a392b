// SPDX-License-Identifier: Apache-2.0
// Products of codes and rows of x that are rounded to eight bits: sums of whole numbers, exact within 32 columns, times
// the scales of both. A lane of a vector is an output, so nothing is added across lanes, and a row's result is the same
// alone and among others.
#pragma once

#include <utility>

#include "devices/cpu/kernels/codes.h"
#include "devices/cpu/kernels/int8_forms.h"

namespace apus::cpu {
namespace {

constexpr int kByteVectors = kPanel / kWidth;  // of a panel
// Rows of a register tile, by two vectors of outputs.
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
constexpr int kInt8Rows = 8;
#else
constexpr int kInt8Rows = 4;
#endif
constexpr int64_t kStepBytes = 4 * kPanel;  // four columns of a panel in bytes, eight of which are of four bits

// One number of a group's 32 outputs, as f32.
inline Floats group_numbers(const void* from, bool wide, int64_t at) {
  return wide ? load(static_cast<const float*>(from) + at) : half_floats(static_cast<const uint16_t*>(from) + at);
}

// The codes of four or six bits of eight columns, the step-th eight of a panel: four, and the four behind them.
template <int kBits, int kHalf>
inline std::pair<Bytes, Bytes> eight_columns(const uint8_t* codes, int64_t step) {
  if constexpr (kBits == 4) {
    const Bytes both = load_bytes(codes + step * kStepBytes);
    return {both & 15, (Bytes)((Words)both >> 4) & 15};
  } else {
    const uint8_t* const sixteen = codes + step / 2 * 3 * kStepBytes;
    const Bytes both = load_bytes(sixteen + kHalf * kStepBytes), upper = load_bytes(sixteen + 2 * kStepBytes);
    const Words first = kHalf ? (Words)upper : (Words)upper << 4,
                second = kHalf ? (Words)upper >> 2 : (Words)upper << 2;
    return {(both & 15) | ((Bytes)first & 0x30), ((Bytes)((Words)both >> 4) & 15) | ((Bytes)second & 0x30)};
  }
}

// sum [R, V] += codes * R rows of numbers, the step-th four columns of eight bits, or eight of others.
template <int kBits, int kHalf, int R, int V, class Form>
inline void add_step(const Form& form, int64_t step, const uint8_t* codes, const int8_t* number, int64_t ld,
                     typename Form::Sum (*sum)[V]) {
  typename Form::Number low[V], high[kBits < 8 ? V : 1];
  for (int v = 0; v < V; ++v) {
    if constexpr (kBits < 8) {
      const auto [first, second] = eight_columns<kBits, kHalf>(codes + 4 * kWidth * v, step);
      low[v] = form.number(first), high[v] = form.number(second);
    } else {
      low[v] = form.number(load_bytes(codes + step * kStepBytes + 4 * kWidth * v));
    }
  }
  number += step * (kBits < 8 ? 8 : 4);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Places one = four(number + r * ld);
    if constexpr (kBits < 8) {
      const Places other = four(number + r * ld + 4);
      for (int v = 0; v < V; ++v)
        if constexpr (requires { Form::add_both(sum[r][v], low[v], one, high[v], other); }) {
          Form::add_both(sum[r][v], low[v], one, high[v], other);
        } else {
          Form::add(sum[r][v], low[v], one), Form::add(sum[r][v], high[v], other);
        }
    } else {
      for (int v = 0; v < V; ++v) Form::add(sum[r][v], low[v], one);
    }
  }
}

// An even number of steps.
template <int kBits, int R, int V, class Form>
inline void add_by_lanes(const Form& form, int64_t steps, const uint8_t* codes, const int8_t* number, int64_t ld,
                         typename Form::Sum (*sum)[V]) {
  for (int64_t step = 0; step < steps; step += 2) {
    add_step<kBits, 0, R, V>(form, step, codes, number, ld, sum);
    add_step<kBits, 1, R, V>(form, step + 1, codes, number, ld, sum);
  }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// The same by SMMLA: eight columns of two rows by those of two outputs, all four sums in one vector.
template <int kBits, int kHalf, int P, int V, class Form>
inline void add_squares(const Form& form, int64_t step, const uint8_t* codes, const int8_t* number, int64_t ld,
                        int32x4_t (*square)[V][2]) {
  int8x16_t w[V][2];
  for (int v = 0; v < V; ++v) {
    std::pair<Bytes, Bytes> eight;
    if constexpr (kBits < 8) {
      eight = eight_columns<kBits, kHalf>(codes + 4 * kWidth * v, step);
    } else {
      const uint8_t* const from = codes + 2 * step * kStepBytes + 4 * kWidth * v;
      eight = {load_bytes(from), load_bytes(from + kStepBytes)};
    }
    const auto low = (int32x4_t)form.number(eight.first), high = (int32x4_t)form.number(eight.second);
    w[v][0] = (int8x16_t)vzip1q_s32(low, high), w[v][1] = (int8x16_t)vzip2q_s32(low, high);
  }
  number += 8 * step;
#pragma GCC unroll 4
  for (int r = 0; r < P; ++r) {
    const int8x16_t rows = vcombine_s8(vld1_s8(number + 2 * r * ld), vld1_s8(number + (2 * r + 1) * ld));
    for (int v = 0; v < V; ++v)
      for (int h = 0; h < 2; ++h) square[r][v][h] = vmmlaq_s32(square[r][v][h], rows, w[v][h]);
  }
}

template <int kBits, int R, int V, class Form>
inline void add_products(const Form& form, int64_t columns, const uint8_t* codes, const int8_t* number, int64_t ld,
                         Ints (*sum)[V]) {
  constexpr int kPairs = R / 2;
  if constexpr (R % 2)
    add_by_lanes<kBits, 1, V>(form, columns / (kBits < 8 ? 8 : 4), codes, number + 2 * kPairs * ld, ld,
                              sum + 2 * kPairs);
  if constexpr (kPairs > 0) {
    int32x4_t square[kPairs][V][2] = {};  // of the first two outputs of four, and the others
    for (int64_t step = 0; step < columns / 8; step += 2) {
      add_squares<kBits, 0, kPairs, V>(form, step, codes, number, ld, square);
      add_squares<kBits, 1, kPairs, V>(form, step + 1, codes, number, ld, square);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kPairs; ++r)
      for (int v = 0; v < V; ++v) {
        const auto low = (int64x2_t)square[r][v][0], high = (int64x2_t)square[r][v][1];
        sum[2 * r][v] = (Ints)vzip1q_s64(low, high), sum[2 * r + 1][v] = (Ints)vzip2q_s64(low, high);
      }
  }
}
#else
template <int kBits, int R, int V, class Form>
inline void add_products(const Form& form, int64_t columns, const uint8_t* codes, const int8_t* number, int64_t ld,
                         typename Form::Sum (*sum)[V]) {
  add_by_lanes<kBits, R, V>(form, columns / (kBits < 8 ? 8 : 4), codes, number, ld, sum);
}
#endif

// c [R, 32] of R rows of x, for V vectors of outputs from the first-th on.
template <int kBits, int R, int V, class Form>
void int8_tile(const Form& form, const CodePanel& w, const Int8Rows& x, int64_t row, int first, float* c) {
  Floats result[R][V] = {};
  const CodeScales& s = w.scales;
  const int64_t unit = s.group % 32 == 0 || s.group >= w.columns ? 32 : 16;
  const uint8_t* codes = w.codes + 4 * kWidth * first;
  const int8_t* number = x.number + row * x.ld;
  int64_t left = s.group, group = kWidth * first;  // of the scales [group][32]
  for (int64_t column = 0; column < w.columns; column += unit, number += unit) {
    typename Form::Sum sum[R][V] = {};
    add_products<kBits, R, V>(form, unit, codes, number, x.ld, sum);
    codes += unit * kPanel * kBits / 8;
    Floats scale[V], least[V] = {};
    for (int v = 0; v < V; ++v) {
      const Floats own = group_numbers(s.scale, s.wide, group + v * kWidth) * s.factor;
      scale[v] = own * w.book_factor;
      if (s.zero) least[v] = group_numbers(s.zero, s.wide, group + v * kWidth) * own;
      if (s.least) least[v] += group_numbers(s.least, s.wide, group + v * kWidth) * s.least_factor;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float by = x.scale[(row + r) * (x.ld / 32) + column / 32];
      const int32_t* sums = x.sum + (row + r) * (x.ld / 16) + column / 16;
      const int32_t all = unit == 32 ? sums[0] + sums[1] : sums[0];
      const Ints bias = splat_int(all * (w.offset - Form::kBias));
      for (int v = 0; v < V; ++v) {
        result[r][v] += __builtin_convertvector(Form::total(sum[r][v]) + bias, Floats) * (scale[v] * by);
        if (s.zero || s.least) result[r][v] -= least[v] * (static_cast<float>(all) * by);
      }
    }
    left -= unit;
    if (left <= 0) left = s.group, group += kPanel;
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(c + r * kPanel + (first + v) * kWidth, result[r][v]);
}

template <int kBits, int R, class Form>
void int8_rows(const Form& form, const CodePanel& w, const Int8Rows& x, int64_t row, int64_t rows, float* c) {
  if constexpr (R == 1) {
    constexpr int kAtOnce = kByteVectors < 4 ? kByteVectors : 4;
    for (int first = 0; first < kByteVectors; first += kAtOnce) int8_tile<kBits, 1, kAtOnce>(form, w, x, row, first, c);
  } else if (rows == R) {
    for (int first = 0; first < kByteVectors; first += 2) int8_tile<kBits, R, 2>(form, w, x, row, first, c);
  } else {
    int8_rows<kBits, R - 1>(form, w, x, row, rows, c);
  }
}

template <int kBits, class Form>
void int8_panel(const Form& form, int64_t m, const Int8Rows& x, const CodePanel& w, float* c) {
  for (int64_t row = 0; row < m; row += kInt8Rows)
    int8_rows<kBits, kInt8Rows>(form, w, x, row, smaller(kInt8Rows, m - row), c + row * kPanel);
}

void dots_int8(int64_t m, const Int8Rows& x, const CodePanel& w, float* c) {
  if (w.bits == 8)
    int8_panel<8>(Wide(), m, x, w, c);
  else if (w.bits == 6)
    int8_panel<6>(Six(), m, x, w, c);
  else if (w.book)
    int8_panel<4>(Book(w.book), m, x, w, c);
  else
    int8_panel<4>(Small(), m, x, w, c);
}

// x is NaN or infinite somewhere: so is its scale.
void round_int8(int64_t k, const bf16* x, int8_t* number, float* scale, int32_t* sum) {
  for (int64_t column = 0; column < k; column += 32) {
    bf16 filled[32] = {};
    std::memcpy(filled, x + column, sizeof(bf16) * smaller(32, k - column));
    Floats most = {}, poison = {};
    for (int i = 0; i < 32; i += kWidth) {
      const Floats v = load(filled + i);
      most = vmax(most, vmax(v, -v));
      poison += v * 0;
    }
    const float bound = largest(most), by = bound > 1e-30f ? 127 / bound : 0;
    scale[column / 32] = bound / 127 + total(poison);
    int32_t whole[32];
    for (int i = 0; i < 32; i += kWidth) {
      const Floats magic = splat(12582912.0f), v = (load(filled + i) * by + magic) - magic;
      const Ints rounded = __builtin_convertvector(v, Ints);
      std::memcpy(whole + i, &rounded, sizeof rounded);
    }
    for (int half = 0; half < 2; ++half) {
      int32_t all = 0;
      for (int i = 16 * half; i < 16 * half + 16; ++i)
        all += whole[i], number[column + i] = static_cast<int8_t>(whole[i]);
      sum[column / 16 + half] = all;
    }
  }
}

}  // namespace
}  // namespace apus::cpu
