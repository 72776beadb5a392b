// SPDX-License-Identifier: Apache-2.0
// AdamW with moments of one byte, and rounding by thresholds, for the including file's level.
#pragma once

#include "devices/cpu/rows.h"

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

// The square root of x >= 0 to f32's last bit or so; a real one costs a processor 20 cycles a vector.
inline Floats quick_root(Floats x) {
#if defined(__AVX512F__)
  const __mmask16 some = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_GT_OQ);
  const Floats inverse = (Floats)_mm512_maskz_rsqrt14_ps(some, (__m512)x), s = x * inverse;
  return s * (1.5f - 0.5f * s * inverse);
#else
  return square_root(x);
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
  // x >= 0 rounded down, or up in proportion to what is cut off: x comes times 2^23, and is below 256 without it.
  Ints round(Floats x) { return (Ints)(((Words) __builtin_convertvector(x, Ints) + (next() >> 9)) >> 23); }

 private:
  Words now_{};
};

inline Ints vmin(Ints a, Ints b) { return a < b ? a : b; }
inline Floats vmin(Floats a, Floats b) { return a < b ? a : b; }
inline Floats magnitude(Floats x) { return (Floats)((Words)x & 0x7fffffffu); }

inline void adamw_moments(int64_t n, float* param, const float* grad, const Moments& moments, const AdamwScalars& s) {
  const float step = s.lr / s.correction1, scale = 1.0f / root(s.correction2), keep = 1.0f - s.lr * s.decay;
  const float old_mean = *moments.mean_scale, old_square = *moments.square_scale;
  constexpr float kOne = 1 << 23;
  alignas(64) float mean[kMoments], spread[kMoments];  // spread: the root of the second moment
  const float mean_factor = old_mean * s.beta1 / (127.0f * 127),
              square_factor = old_square * s.beta2 / (255.0f * 255 * 255 * 255);
  Floats most{}, most_square{};
  for (int64_t j = 0; j < n; j += kWidth) {
    const Floats g = load(grad + j) * s.grad_scale;
    const Floats a = floats_at(moments.mean + j), b = floats_at(moments.square + j), bb = b * b;
    const Floats m = a * magnitude(a) * mean_factor + g * (1.0f - s.beta1);
    const Floats v = bb * bb * square_factor + g * g * (1.0f - s.beta2), sqrt_v = quick_root(v);
    most = vmax(most, magnitude(m)), most_square = vmax(most_square, v);
    store(mean + j, m), store(spread + j, sqrt_v);
    store(param + j, load(param + j) * keep - m * step / (sqrt_v * scale + s.eps));
  }
  *moments.mean_scale = largest(most), *moments.square_scale = largest(most_square);
  const auto inverse = [](float x) { return x > 0 ? 1.0f / x : 0.0f; };
  const float of_mean = inverse(*moments.mean_scale), of_spread = inverse(root(*moments.square_scale));
  Thresholds mean_at(moments.mean_threshold), square_at(moments.square_threshold);
  for (int64_t j = 0; j < n; j += kWidth) {
    const Floats m = load(mean + j), r = load(spread + j);
    // No root exceeds its code's end by more than a last bit, which the smaller one of the two cuts.
    const Ints code = mean_at.round(vmin(quick_root(magnitude(m) * of_mean), splat(1.0f)) * (127.0f * kOne));
    put_bytes(moments.mean + j, m < 0.0f ? -code : code);
    const Ints square = square_at.round(vmin(quick_root(r * of_spread), splat(1.0f)) * (255.0f * kOne));
    put_bytes(moments.square + j,
              r > 0.0f && square == 0 ? splat_int(1) : square);  // a positive one divides: never zero
  }
}

// A bf16 is the upper half of an f32: add a threshold to the lower half, then cut it off.
inline void narrow_by_thresholds(int64_t n, const float* x, uint32_t threshold, bf16* y) {
  Thresholds at(threshold);
  by_vectors(n, [&](int64_t j, auto all) {
    const Halves h = __builtin_convertvector(((Words)get<all>(x, j, n) + (at.next() >> 16)) >> 16, Halves);
    const int64_t count = all ? kWidth : n - j;
    std::memcpy(y + j, &h, static_cast<size_t>(count) * sizeof(bf16));
  });
}

}  // namespace
}  // namespace apus::cpu
