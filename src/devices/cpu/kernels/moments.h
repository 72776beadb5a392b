// SPDX-License-Identifier: Apache-2.0
// AdamW with moments of one byte, and rounding by thresholds, for the including file's level.
#pragma once

#include <utility>

#include "devices/cpu/kernels/rows.h"

namespace apus::cpu {
namespace {

// Bytes to floats, and whole numbers that fit to bytes. In intrinsics: g++ 12 converts vectors of bytes one by one.
#if defined(__AVX512F__)
inline Floats floats_at(const int8_t* p) {
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats floats_at(const uint8_t* p) {
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
template <class Byte>
inline void put_bytes(Byte* p, Ints v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)v));
}
#elif defined(__AVX2__)
inline Floats floats_at(const int8_t* p) {
  return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats floats_at(const uint8_t* p) {
  return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
template <class Byte>
inline void put_bytes(Byte* p, Ints v) {
  const __m256i words = (__m256i)v;
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  const __m128i bytes = Byte(-1) < 0 ? _mm_packs_epi16(halves, halves) : _mm_packus_epi16(halves, halves);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
}
#elif defined(__ARM_NEON)
inline Floats floats_at(const int8_t* p) { return byte_floats(p); }
inline Floats floats_at(const uint8_t* p) { return byte_floats(p); }
template <class Byte>
inline void put_bytes(Byte* p, Ints v) {
  const uint16x4_t halves = vmovn_u32((uint32x4_t)v);
  const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(halves, halves))), 0);
  std::memcpy(p, &bytes, sizeof bytes);
}
#else
template <class Byte>
inline Floats floats_at(const Byte* p) {
  Floats v;
  for (int i = 0; i < kWidth; ++i) v[i] = static_cast<float>(p[i]);
  return v;
}
template <class Byte>
inline void put_bytes(Byte* p, Ints v) {
  for (int i = 0; i < kWidth; ++i) p[i] = static_cast<Byte>(v[i]);
}
#endif

#if defined(__AVX512F__)
inline __m512 native(Floats x) { return (__m512)x; }
#endif

// factor times the square root of x > 0, to f32's last bit or so; a real one costs a processor 20 cycles a vector.
inline Floats quick_root(Floats x, float factor) {
#if defined(__AVX512F__)
  const Floats inverse = (Floats)_mm512_rsqrt14_ps(native(x)), s = x * inverse;
  return s * (1.5f * factor - 0.5f * factor * (s * inverse));
#else
  return square_root(x) * factor;
#endif
}

// max(a, |b|) for a >= 0
inline Floats most_of(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_range_ps(native(a), native(b), 0b1011);  // the larger magnitude, without a sign
#else
  return vmax(a, (Floats)((Words)b & 0x7fffffffu));
#endif
}

// Thresholds of consecutive elements.
class Thresholds {
 public:
  explicit Thresholds(uint32_t begin) {
    for (int i = 0; i < kWidth; ++i) now_[i] = begin + static_cast<uint32_t>(i) * kThresholdStride;
  }
  Words next() {
    const Words t = now_;
    now_ += kWidth * kThresholdStride;
    return t;
  }

 private:
  Words now_{};
};

// A bf16 is the upper half of an f32: add a threshold to the lower half, then cut it off.
inline Words upper_half(Floats x, Words threshold) { return ((Words)x + (threshold >> 16)) >> 16; }

// Two vectors of new values into a bf16 parameter (f32: as they are).
template <bool stochastic, class E>
inline void put_pair(E* p, Floats a, Floats b, Thresholds& at) {
  if constexpr (!stochastic) {
    store(p, a), store(p + kWidth, b);
  } else {
    const Words low = upper_half(a, at.next()), high = upper_half(b, at.next());
#if defined(__AVX512F__)
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order, _mm512_packus_epi32((__m512i)low, (__m512i)high)));
#else
    const Halves h[2] = {__builtin_convertvector(low, Halves), __builtin_convertvector(high, Halves)};
    std::memcpy(p, h, sizeof h);
#endif
  }
}

// Codes times 256, rounded to nearest, become bytes: rounded down by what is above their thresholds, of 8 bits, up
// otherwise. kStep elements at a time.
#if defined(__AVX512F__)
class Codes {
 public:
  static constexpr int kStep = 64;
  explicit Codes(uint16_t begin) {
    // The order in which packing leaves elements: in pieces of four of both vectors.
    alignas(64) uint16_t first[32];
    for (int i = 0; i < 32; ++i)
      first[i] = static_cast<uint16_t>(begin + kCodeStride * (i / 8 * 4 + i % 4 + i % 8 / 4 * 16));
    now_ = _mm512_load_si512(first);
  }
  template <class Byte, class Code>
  void put(Byte* to, const Code& code) {
    constexpr bool is_signed = Byte(-1) < 0;
    __m512i words[2];
    for (int i = 0; i < 2; ++i) {
      const __m512i a = _mm512_cvtps_epi32(native(code(2 * i))), b = _mm512_cvtps_epi32(native(code(2 * i + 1)));
      const __m512i sum = _mm512_add_epi16(is_signed ? _mm512_packs_epi32(a, b) : _mm512_packus_epi32(a, b),
                                           _mm512_srli_epi16(now_, 8));
      words[i] = is_signed ? _mm512_srai_epi16(sum, 8) : _mm512_srli_epi16(sum, 8);
      now_ = _mm512_add_epi16(now_, _mm512_set1_epi16(static_cast<int16_t>(32 * kCodeStride)));
    }
    const __m512i bytes = is_signed ? _mm512_packs_epi16(words[0], words[1]) : _mm512_packus_epi16(words[0], words[1]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
  }

 private:
  __m512i now_;
};
#else
class Codes {
 public:
  static constexpr int kStep = kWidth;
  explicit Codes(uint16_t begin) {
    for (int i = 0; i < kWidth; ++i) now_[i] = begin + static_cast<uint32_t>(i) * kCodeStride;
  }
  template <class Byte, class Code>
  void put(Byte* to, const Code& code) {
    // 1.5 * 2^23: adding it rounds to an integer, in the lower bits.
    constexpr float kMagic = 12582912.0f;
    const Ints nearest = (Ints)(code(0) + kMagic) - 0x4b400000;
    put_bytes(to, (nearest + (Ints)((now_ & 0xffff) >> 8)) >> 8);
    now_ += kWidth * kCodeStride;
  }

 private:
  Words now_{};
};
#endif

inline Floats with_sign_of(Floats magnitude, Floats x) {  // magnitude >= 0
  return (Floats)((Words)magnitude | ((Words)x & 0x80000000u));
}
// value where x > 0, 0 elsewhere
inline Floats where_positive(Floats x, Floats value) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(native(x), _mm512_setzero_ps(), _CMP_GT_OQ), native(value));
#else
  return x > 0.0f ? value : Floats{};
#endif
}

constexpr int64_t kAskedAhead = 4096;  // bytes
constexpr float kTiny = 1.2e-38f;      // about the least that is not denormal

struct MomentSpace {  // of one call: the first loop's results for the second
  alignas(64) float mean[kMomentStretch], spread[kMomentStretch];  // spread: the root of the second moment
};

// The scalars of a step as the inner loop wants them.
struct MomentFactors {
  explicit MomentFactors(const AdamwScalars& s)
      : keep(1.0f - s.lr * s.decay),
        mean_share(s.grad_scale * (1.0f - s.beta1)),
        square_share(s.grad_scale * s.grad_scale * (1.0f - s.beta2)),
        mean_kept(s.beta1 / (127.0f * 127)),
        square_kept(s.beta2 / (255.0f * 255 * 255 * 255)) {
    const float step = s.lr / s.correction1;  // 0 where warming up begins
    if (step > 0) of_root = 1.0f / (root(s.correction2) * step), least = s.eps / step;
  }
  float keep, mean_share, square_share, mean_kept, square_kept;
  // value = value * keep - mean / (root of square * of_root + least).
  float of_root = 0, least = kInfinity;
};

// Asks memory for what the loop comes to later: there are too many streams for the hardware to follow them all.
inline void ask_ahead(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + kAskedAhead, 1); }

// One block: new moments and values. Returns the moments' largest.
template <bool stochastic, bool has_master, class Value, class E>
inline std::pair<Floats, Floats> update_block(int64_t begin, int64_t n, Value* value, E* param, const E* grad,
                                              const Moments& moments, const MomentFactors& f, Thresholds& param_at,
                                              MomentSpace& space) {
  const float mean_factor = moments.mean_scale[begin / kMoments] * f.mean_kept,
              square_factor = moments.square_scale[begin / kMoments] * f.square_kept;
  const int8_t* const mean_code = moments.mean;
  const uint8_t* const square_code = moments.square;
  Floats most{}, most_square{};
  const auto updated = [&](int64_t j) {
    const Floats g = load(grad + j);
    const Floats a = floats_at(mean_code + j), b = floats_at(square_code + j), bb = b * b;
    const Floats m = a * (Floats)((Words)a & 0x7fffffffu) * mean_factor + g * f.mean_share;
    const Floats v = bb * bb * square_factor + g * g * f.square_share;
    most = most_of(most, m), most_square = most_of(most_square, v);
    const Floats spread = where_positive(v, quick_root(most_of(splat(kTiny), v), 1.0f));
    store(space.mean + j, m), store(space.spread + j, spread);
    const Floats result = load(value + j) * f.keep - m / (spread * f.of_root + f.least);
    if constexpr (has_master) store(value + j, result);
    return result;
  };
  for (int64_t j = begin; j < begin + n; j += 2 * kWidth) {
    ask_ahead(value + j), ask_ahead(grad + j);
    if (j % 64 == 0) ask_ahead(mean_code + j), ask_ahead(square_code + j);
    const Floats low = updated(j), high = updated(j + kWidth);
    put_pair<stochastic>(param + j, low, high, param_at);
  }
  return {most, most_square};
}

// value: the parameter itself, or the f32 master that it is rounded from. A block's moments are divided by their
// largest, which is known when the block is through: so a stretch is gone through twice, in the first-level cache.
template <bool stochastic, bool has_master, class Value, class E>
void update_stretch(int64_t n, Value* value, E* param, const E* grad, const Moments& moments, const AdamwScalars& s) {
  MomentSpace space;
  const MomentFactors factors(s);
  Thresholds param_at(moments.param_threshold);
  const auto inverse = [](float x) { return x > 1e-37f ? 1.0f / x : 0.0f; };
  float of_mean[kMomentStretch / kMoments], of_spread[kMomentStretch / kMoments];
  for (int64_t j = 0, b = 0; j < n; j += kMoments, ++b) {
    const auto [most, most_square] = update_block<stochastic, has_master>(
        j, n - j < kMoments ? n - j : kMoments, value, param, grad, moments, factors, param_at, space);
    const float mean_scale = largest(most), square_scale = largest(most_square);
    moments.mean_scale[b] = mean_scale, moments.square_scale[b] = square_scale;
    of_mean[b] = 256 * 127.0f * root(inverse(mean_scale));
    of_spread[b] = 256 * 255.0f * root(inverse(root(square_scale)));
  }
  Codes mean_at(moments.mean_threshold), square_at(moments.square_threshold);
  int8_t* const mean_code = moments.mean;
  uint8_t* const square_code = moments.square;
  for (int64_t j = 0; j < n; j += Codes::kStep) {
    const float by_mean = of_mean[j / kMoments], by_spread = of_spread[j / kMoments];
    mean_at.put(mean_code + j, [&](int i) {
      const Floats m = load(space.mean + j + i * kWidth);
      return with_sign_of(quick_root(most_of(splat(kTiny), m), by_mean), m);
    });
    square_at.put(square_code + j, [&](int i) {
      const Floats r = load(space.spread + j + i * kWidth);
      return where_positive(r, vmax(quick_root(r, by_spread), splat(256.0f)));  // a positive one divides: never zero
    });
  }
}

template <class E>
void update_values(int64_t n, const AdamwValues& values, const Moments& moments, const AdamwScalars& s) {
  E* const param = static_cast<E*>(values.param);
  const E* const grad = static_cast<const E*>(values.grad);
  if constexpr (sizeof(E) == 2)
    if (moments.stochastic)
      return values.master ? update_stretch<true, true>(n, values.master, param, grad, moments, s)
                           : update_stretch<true, false>(n, param, param, grad, moments, s);
  return values.master ? update_stretch<false, true>(n, values.master, param, grad, moments, s)
                       : update_stretch<false, false>(n, param, param, grad, moments, s);
}
inline void adamw_moments(int64_t n, const AdamwValues& values, const Moments& moments, const AdamwScalars& s) {
  values.half ? update_values<bf16>(n, values, moments, s) : update_values<float>(n, values, moments, s);
}

inline void narrow_by_thresholds(int64_t n, const float* x, uint32_t threshold, bf16* y) {
  Thresholds at(threshold);
  by_vectors(n, [&](int64_t j, auto all) {
    const Halves h = __builtin_convertvector(upper_half(get<all>(x, j, n), at.next()), Halves);
    const int64_t count = all ? kWidth : n - j;
    std::memcpy(y + j, &h, static_cast<size_t>(count) * sizeof(bf16));
  });
}

}  // namespace
}  // namespace apus::cpu
