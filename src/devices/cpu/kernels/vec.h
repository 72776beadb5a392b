// SPDX-License-Identifier: Apache-2.0
// Vectors of floats as wide as the including file's instruction set allows (compiler vector extensions, so the same
// text serves AVX-512, AVX2, SSE and NEON), their conversion from and to bf16, and exp. Everything is in an unnamed
// namespace: each level file gets its own copies.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "devices/cpu/kernels/kernels.h"

namespace apus::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
// How many vectors the processor holds: tiles of sums are as large as that allows.
#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

using Floats = float __attribute__((vector_size(4 * kWidth)));
using Words = uint32_t __attribute__((vector_size(4 * kWidth)));
using Ints = int32_t __attribute__((vector_size(4 * kWidth)));
using Halves = uint16_t __attribute__((vector_size(2 * kWidth)));

constexpr float kInfinity = __builtin_inff();

inline Floats splat(float x) { return x - Floats{}; }
inline Ints splat_int(int32_t x) { return x - Ints{}; }

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

inline Floats load(const bf16* p) {
#if defined(__AVX512F__)  // the compiler would convert each half by itself
  return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#elif defined(__ARM_NEON)
  return (Floats)vshll_n_u16(vld1_u16(p), 16);
#else
  Halves h;
  std::memcpy(&h, p, sizeof h);
  return (Floats)(__builtin_convertvector(h, Words) << 16);
#endif
}

inline void store(bf16* p, Floats v) {
#if defined(__AVX512BF16__)
  const __m256bh h = _mm512_cvtneps_pbh((__m512)v);
#else
  const Words u = (Words)v, rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;        // to nearest, ties to even
  const Words quiet = (u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 0x40 : rounded;  // NaN stays NaN
  const Halves h = __builtin_convertvector(quiet, Halves);
#endif
  std::memcpy(p, &h, sizeof h);
}

#if defined(__ARM_NEON)
// Four bytes, widened: g++ 12 converts vectors of bytes one by one.
inline uint16x4_t four_bytes(const uint8_t* p) {
  uint32_t all;
  std::memcpy(&all, p, sizeof all);
  return vget_low_u16(vmovl_u8(vcreate_u8(all)));
}
inline Floats byte_floats(const uint8_t* p) { return (Floats)vcvtq_f32_u32(vmovl_u16(four_bytes(p))); }
inline Floats byte_floats(const int8_t* p) {
  const int16x4_t high = vreinterpret_s16_u16(vshl_n_u16(four_bytes(reinterpret_cast<const uint8_t*>(p)), 8));
  return (Floats)vcvtq_n_f32_s32(vmovl_s16(high), 8);
}
#endif

inline float one(const float* p) { return *p; }
inline float one(const bf16* p) {
  const uint32_t u = static_cast<uint32_t>(*p) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline void put(float* p, float v) { *p = v; }
inline void put(bf16* p, float v) {
  bf16 all[kWidth];
  store(all, splat(v));
  *p = all[0];
}

// x as memory of type E would hold it.
template <class E>
inline Floats rounded_to(Floats x) {
  if constexpr (sizeof(E) == 4) return x;
  bf16 all[kWidth];
  store(all, x);
  return load(all);
}

// The first n < kWidth elements, the rest `fill`; and the way back.
template <class E>
inline Floats load_some(const E* p, int64_t n, float fill = 0) {
  float all[kWidth];
  for (int i = 0; i < kWidth; ++i) all[i] = i < n ? one(p + i) : fill;
  return load(all);
}
template <class E>
inline void store_some(E* p, Floats v, int64_t n) {
  E all[kWidth];
  store(all, v);
  for (int64_t i = 0; i < n; ++i) p[i] = all[i];
}

inline Floats vmax(Floats a, Floats b) { return a > b ? a : b; }
inline float larger(float a, float b) { return a > b ? a : b; }
// Over all lanes, always in the same order.
template <class Combine>
inline float fold(Floats v, const Combine& combine) {
  float all[kWidth];
  store(all, v);
  for (int half = kWidth / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) all[i] = combine(all[i], all[i + half]);
  return all[0];
}
inline float total(Floats v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#elif defined(__ARM_NEON)
  return vaddvq_f32((float32x4_t)v);
#else
  return fold(v, [](float a, float b) { return a + b; });
#endif
}
inline float largest(Floats v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#elif defined(__ARM_NEON)
  return vmaxvq_f32((float32x4_t)v);
#else
  return fold(v, larger);
#endif
}

// 2^f for |f| <= 0.5, relative error 2e-7.
inline Floats exp2_fraction(Floats f) {
  Floats p = splat(1.535336188319500e-4f);
  p = p * f + 1.339887440266574e-3f;
  p = p * f + 9.618437357674640e-3f;
  p = p * f + 5.550332471162809e-2f;
  p = p * f + 2.402264791363012e-1f;
  p = p * f + 6.931472028550421e-1f;
  return p * f + 1.0f;
}

// 2^x; 0 below -126 (so also for -inf). x <= 127.
inline Floats exp2_of(Floats x) {
#if defined(__AVX512F__)
  // Small results are masked, not computed: a denormal one costs the processor 150 cycles.
  const __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ);
  const Floats n = (Floats)_mm512_roundscale_ps((__m512)x, 8);
  return (Floats)_mm512_maskz_scalef_ps(normal, (__m512)exp2_fraction(x - n), (__m512)n);
#else
  const Floats bounded = vmax(x, splat(-126.0f));
  const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats n = (bounded + magic) - magic;
  const Ints exponent = __builtin_convertvector(n, Ints);
  const Floats y = (Floats)((Ints)exp2_fraction(bounded - n) + (exponent << 23));
  return x < -126.0f ? Floats{} : y;
#endif
}
constexpr float kLog2e = 1.44269504088896341f;
inline Floats exp_of(Floats x) {
  const Floats y = x * kLog2e;
  return exp2_of(y > 127.0f ? splat(127.0f) : y);
}
inline Floats sigmoid(Floats x) { return 1.0f / (1.0f + exp_of(-x)); }

}  // namespace
}  // namespace apus::cpu
