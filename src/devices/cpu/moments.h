// SPDX-License-Identifier: Apache-2.0
// AdamW with moments of one byte, and rounding by thresholds, for the including file's level.
#pragma once

#include "devices/cpu/rows.h"

namespace apus::cpu {
namespace {

// Bytes to floats and, of whole numbers that fit, back. In intrinsics: g++ 12 converts vectors of bytes one by one.
#if defined(__AVX512F__)
inline Floats floats_at(const int8_t* p) {
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats floats_at(const uint8_t* p) {
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
template <class Byte>
inline void put_bytes(Byte* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32((__m512)v)));
}
#elif defined(__AVX2__)
inline Floats floats_at(const int8_t* p) {
  return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats floats_at(const uint8_t* p) {
  return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
template <class Byte>
inline void put_bytes(Byte* p, Floats v) {
  const __m256i words = _mm256_cvttps_epi32((__m256)v);
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
inline void put_bytes(Byte* p, Floats v) {
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
  Floats next_fraction() { return __builtin_convertvector((Ints)(next() >> 8), Floats) * (1.0f / (1 << 24)); }

 private:
  Words now_{};
};

inline Floats whole(Floats x) { return __builtin_convertvector(__builtin_convertvector(x, Ints), Floats); }  // of x >= 0
inline Floats vmin(Floats a, Floats b) { return a < b ? a : b; }
inline Floats magnitude(Floats x) { return (Floats)((Words)x & 0x7fffffffu); }

inline void adamw_moments(int64_t n, float* param, const float* grad, const Moments& moments, const AdamwScalars& s) {
  const float step = s.lr / s.correction1, scale = 1.0f / root(s.correction2), keep = 1.0f - s.lr * s.decay;
  const float old_mean = *moments.mean_scale, old_square = *moments.square_scale;
  alignas(64) float mean[kMoments], spread[kMoments];  // spread: the root of the second moment
  Floats most{}, most_square{};
  for (int64_t j = 0; j < n; j += kWidth) {
    const Floats g = load(grad + j) * s.grad_scale;
    const Floats a = floats_at(moments.mean + j) * (1.0f / 127), b = floats_at(moments.square + j) * (1.0f / 255), bb = b * b;
    const Floats m = a * magnitude(a) * old_mean * s.beta1 + g * (1.0f - s.beta1);
    const Floats v = bb * bb * old_square * s.beta2 + g * g * (1.0f - s.beta2), sqrt_v = quick_root(v);
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
    const Floats code = vmin(whole(quick_root(magnitude(m) * of_mean) * 127.0f + mean_at.next_fraction()), splat(127.0f));
    put_bytes(moments.mean + j, m < 0.0f ? -code : code);
    const Floats square = vmin(whole(quick_root(r * of_spread) * 255.0f + square_at.next_fraction()), splat(255.0f));
    put_bytes(moments.square + j, vmax(square, r > 0.0f ? splat(1.0f) : Floats{}));  // a positive one divides: never zero
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
