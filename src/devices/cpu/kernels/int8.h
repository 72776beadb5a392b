// SPDX-License-Identifier: Apache-2.0
// Products of codes and rows of x that are rounded to eight bits: sums of whole numbers, exact within 32 columns, times
// the scales of both. A lane of a vector is an output, so nothing is added across lanes, and a row's result is the same
// alone and among others.
#pragma once

#include "devices/cpu/kernels/codes.h"

namespace apus::cpu {
namespace {

constexpr int kByteVectors = kPanel / kWidth;    // of a panel
constexpr int kInt8Rows = kWidth == 16 ? 8 : 4;  // of a register tile, by two vectors of outputs
constexpr int64_t kStepBytes = 4 * kPanel;       // four columns of a panel in bytes, eight in halves of bytes
using Bytes = uint8_t __attribute__((vector_size(4 * kWidth)));  // of each output four columns
using Places = int8_t __attribute__((vector_size(4 * kWidth)));

inline Bytes load_bytes(const uint8_t* p) {
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// Four numbers of a row, for each output.
inline Places four(const int8_t* x) {
  int32_t all;
  std::memcpy(&all, x, 4);
  return (Places)splat_int(all);
}

#if defined(__AVX512VNNI__)

// Unsigned by signed numbers, four products a lane: what is signed is made larger by 128, which sums of x undo.
struct Unsigned {
  using Sum = Ints;
  static void add(Sum& sum, Bytes w, Places x) {
    sum = (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
  }
  static Ints total(Sum sum) { return sum; }
};
struct Small : Unsigned {
  static constexpr int kBias = 0;
  using Number = Bytes;
  static Number number(Bytes code) { return code; }
};
struct Wide : Unsigned {
  static constexpr int kBias = 128;
  using Number = Bytes;
  static Number number(Bytes code) { return code ^ 0x80; }
};
class Book : public Unsigned {
 public:
  static constexpr int kBias = 128;
  using Number = Bytes;
  explicit Book(const int8_t* book)
      : book_(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(book)))) {}
  Number number(Bytes code) const { return (Bytes)_mm512_shuffle_epi8(book_, (__m512i)code) ^ 0x80; }

 private:
  __m512i book_;
};

#elif defined(__AVX2__) && !defined(__AVX512F__)

// Two products a 16-bit lane. Eight of codes up to 15 fit in it; signed numbers give x their sign, and two fit.
struct Small {
  static constexpr int kBias = 0;
  using Number = Bytes;
  using Sum = __m256i;
  static Number number(Bytes code) { return code; }
  static void add(Sum& sum, Number w, Places x) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16((__m256i)w, (__m256i)x));
  }
  static Ints total(Sum sum) { return (Ints)_mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};
struct Signs {
  static constexpr int kBias = 0;
  struct Number {
    __m256i number, size;
  };
  using Sum = Ints;
  static void add(Sum& sum, const Number& w, Places x) {
    const __m256i pairs = _mm256_maddubs_epi16(w.size, _mm256_sign_epi8((__m256i)x, w.number));
    sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  static Ints total(Sum sum) { return sum; }
};
struct Wide : Signs {
  static Number number(Bytes code) { return {(__m256i)code, _mm256_abs_epi8((__m256i)code)}; }
};
class Book : public Signs {
 public:
  explicit Book(const int8_t* book)
      : book_(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(book)))),
        sizes_(_mm256_abs_epi8(book_)) {}
  Number number(Bytes code) const {
    return {_mm256_shuffle_epi8(book_, (__m256i)code), _mm256_shuffle_epi8(sizes_, (__m256i)code)};
  }

 private:
  __m256i book_, sizes_;
};

#else

struct Scalars {
  static constexpr int kBias = 0;
  using Number = Places;
  using Sum = Ints;
  static void add(Sum& sum, Number w, Places x) {
    for (int i = 0; i < kWidth; ++i)
      for (int j = 0; j < 4; ++j) sum[i] += w[4 * i + j] * x[4 * i + j];
  }
  static Ints total(Sum sum) { return sum; }
};
struct Wide : Scalars {
  static Number number(Bytes code) { return (Places)code; }
};
using Small = Wide;
class Book : public Scalars {
 public:
  explicit Book(const int8_t* book) { std::memcpy(book_, book, sizeof book_); }
  Number number(Bytes code) const {
    Number out;
    for (int i = 0; i < 4 * kWidth; ++i) out[i] = book_[code[i]];
    return out;
  }

 private:
  int8_t book_[16];
};

#endif

// One number of a group's 32 outputs, as f32.
inline Floats group_numbers(const void* from, bool wide, int64_t at) {
  return wide ? load(static_cast<const float*>(from) + at) : half_floats(static_cast<const uint16_t*>(from) + at);
}

// c [R, 32] of R rows of x, for V vectors of outputs from the first-th on. kHalves: codes of four bits.
template <bool kHalves, int R, int V, class Form>
void int8_tile(const Form& form, const CodePanel& w, const Int8Rows& x, int64_t row, int first, float* c) {
  Floats result[R][V] = {};
  const CodeScales& s = w.scales;
  const int64_t unit = s.group % 32 == 0 || s.group >= w.columns ? 32 : 16, steps = kHalves ? unit / 8 : unit / 4;
  const uint8_t* codes = w.codes + 4 * kWidth * first;
  const int8_t* number = x.number + row * x.ld;
  int64_t left = s.group, group = kWidth * first;  // of the scales [group][32]
  for (int64_t column = 0; column < w.columns; column += unit, number += unit) {
    typename Form::Sum sum[R][V] = {};
    const int8_t* here = number;
    for (int64_t step = 0; step < steps; ++step, codes += kStepBytes, here += kHalves ? 8 : 4) {
      typename Form::Number low[V], high[kHalves ? V : 1];
      for (int v = 0; v < V; ++v) {
        const Bytes code = load_bytes(codes + 4 * kWidth * v);
        if constexpr (kHalves) {
          low[v] = form.number(code & 15);
          high[v] = form.number((Bytes)((Words)code >> 4) & 15);
        } else {
          low[v] = form.number(code);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Places one = four(here + r * x.ld);
        for (int v = 0; v < V; ++v) Form::add(sum[r][v], low[v], one);
        if constexpr (kHalves) {
          const Places other = four(here + r * x.ld + 4);
          for (int v = 0; v < V; ++v) Form::add(sum[r][v], high[v], other);
        }
      }
    }
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

template <bool kHalves, int R, class Form>
void int8_rows(const Form& form, const CodePanel& w, const Int8Rows& x, int64_t row, int64_t rows, float* c) {
  if constexpr (R == 1) {
    constexpr int kAtOnce = kByteVectors < 4 ? kByteVectors : 4;
    for (int first = 0; first < kByteVectors; first += kAtOnce)
      int8_tile<kHalves, 1, kAtOnce>(form, w, x, row, first, c);
  } else if (rows == R) {
    for (int first = 0; first < kByteVectors; first += 2) int8_tile<kHalves, R, 2>(form, w, x, row, first, c);
  } else {
    int8_rows<kHalves, R - 1>(form, w, x, row, rows, c);
  }
}

template <bool kHalves, class Form>
void int8_panel(const Form& form, int64_t m, const Int8Rows& x, const CodePanel& w, float* c) {
  for (int64_t row = 0; row < m; row += kInt8Rows)
    int8_rows<kHalves, kInt8Rows>(form, w, x, row, smaller(kInt8Rows, m - row), c + row * kPanel);
}

void dots_int8(int64_t m, const Int8Rows& x, const CodePanel& w, float* c) {
  if (w.bits == 8)
    int8_panel<false>(Wide(), m, x, w, c);
  else if (w.book)
    int8_panel<true>(Book(w.book), m, x, w, c);
  else
    int8_panel<true>(Small(), m, x, w, c);
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
      poison += v - v;
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
