// SPDX-License-Identifier: Apache-2.0
// Products of eight bits, four a lane, by the instructions of the including file's level: a form says as what codes are
// multiplied, and how products are added. kBias: what codes are larger by.
#pragma once

#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {
namespace {

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
using Six = Small;
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
// Four of codes up to 63 fit.
struct Six {
  static constexpr int kBias = 0;
  using Number = Bytes;
  using Sum = Ints;
  static Number number(Bytes code) { return code; }
  static void add_both(Sum& sum, Number w, Places x, Number other, Places y) {
    const __m256i all = _mm256_add_epi16(_mm256_maddubs_epi16((__m256i)w, (__m256i)x),
                                         _mm256_maddubs_epi16((__m256i)other, (__m256i)y));
    sum += (Ints)_mm256_madd_epi16(all, _mm256_set1_epi16(1));
  }
  static Ints total(Sum sum) { return sum; }
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

#elif defined(__ARM_NEON)

#if defined(__ARM_FEATURE_DOTPROD)
// Four products a lane.
struct Plain {
  static constexpr int kBias = 0;
  using Number = Places;
  using Sum = Ints;
  static void add(Sum& sum, Number w, Places x) { sum = (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x); }
  static Ints total(Sum sum) { return sum; }
};
#else
// One product a 16-bit lane, and with its neighbour into one of 32 bits.
struct Plain {
  static constexpr int kBias = 0;
  using Number = Places;
  struct Sum {
    int32x4_t low, high;
  };
  static void add(Sum& sum, Number w, Places x) {
    sum.low = vpadalq_s16(sum.low, vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)x)));
    sum.high = vpadalq_s16(sum.high, vmull_high_s8((int8x16_t)w, (int8x16_t)x));
  }
  static Ints total(const Sum& sum) { return (Ints)vpaddq_s32(sum.low, sum.high); }
};
#endif
struct Wide : Plain {
  static Number number(Bytes code) { return (Places)code; }
};
using Six = Wide;
#if defined(__ARM_FEATURE_DOTPROD)
using Small = Wide;
#else
// Eight products of codes up to 15 fit in 16 bits.
struct Small {
  static constexpr int kBias = 0;
  using Number = Places;
  struct Sum {
    int16x8_t low, high;
  };
  static Number number(Bytes code) { return (Places)code; }
  static void add(Sum& sum, Number w, Places x) {
    sum.low = vmlal_s8(sum.low, vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)x));
    sum.high = vmlal_high_s8(sum.high, (int8x16_t)w, (int8x16_t)x);
  }
  static Ints total(const Sum& sum) { return (Ints)vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high)); }
};
#endif
class Book : public Plain {
 public:
  explicit Book(const int8_t* book) : book_(vld1q_s8(book)) {}
  Number number(Bytes code) const { return (Places)vqtbl1q_s8(book_, (uint8x16_t)code); }

 private:
  int8x16_t book_;
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
using Six = Wide;
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

}  // namespace
}  // namespace apus::cpu
