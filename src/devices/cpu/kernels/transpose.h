// SPDX-License-Identifier: Apache-2.0
// Squares of dwords, rows to columns: 16 by 16 for AVX-512, 8 by 8 for AVX2, 4 by 4 for NEON.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>

#include <cstdint>
#elif defined(__ARM_NEON)
#include <arm_neon.h>

#include <cstdint>
#endif

#if defined(__AVX512F__)

namespace apus::cpu {
namespace {

// out[j][i] = rows[i][j]; of the 16 rows, `offset_bytes` into each, the first n are there and the others zero.
inline void transpose16(const void* const* rows, int64_t n, int64_t offset_bytes, void* out) {
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    r[i] = i < n ? _mm512_loadu_si512(static_cast<const char*>(rows[i]) + offset_bytes) : _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  char* to = static_cast<char*>(out);
#pragma GCC unroll 4
  // r[4 i + j]: column j of each of the four 128-bit groups, rows 4 i .. 4 i + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd), d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    _mm512_storeu_si512(to + 64 * j, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(to + 64 * (8 + j), _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(to + 64 * (4 + j), _mm512_shuffle_i32x4(c, d, 0x88));
    _mm512_storeu_si512(to + 64 * (12 + j), _mm512_shuffle_i32x4(c, d, 0xdd));
  }
}

}  // namespace
}  // namespace apus::cpu
#elif defined(__AVX2__)
namespace apus::cpu {
namespace {

// The same of 8 rows; out[j] lies `apart_bytes` behind out[j - 1].
inline void transpose_dwords(const void* const* rows, int64_t n, int64_t offset_bytes, void* out, int64_t apart_bytes) {
  __m256i r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    r[i] = i < n
               ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(rows[i]) + offset_bytes))
               : _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  const auto put = [&](int64_t j, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(out) + j * apart_bytes), v);
  };
#pragma GCC unroll 4
  // r[j], r[4 + j]: column j of each half, rows 0 to 3 and 4 to 7.
  for (int j = 0; j < 4; ++j) {
    put(j, _mm256_permute2x128_si256(r[j], r[4 + j], 0x20));
    put(4 + j, _mm256_permute2x128_si256(r[j], r[4 + j], 0x31));
  }
}

}  // namespace
}  // namespace apus::cpu
#elif defined(__ARM_NEON)
namespace apus::cpu {
namespace {

// The same of 4 rows.
inline void transpose_dwords(const void* const* rows, int64_t n, int64_t offset_bytes, void* out, int64_t apart_bytes) {
  const auto row = [&](int64_t i) {
    return i < n ? vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(rows[i]) + offset_bytes)) : vdupq_n_u32(0);
  };
  const uint32x4_t a = row(0), b = row(1), c = row(2), d = row(3);
  const uint64x2_t low[] = {vreinterpretq_u64_u32(vtrn1q_u32(a, b)), vreinterpretq_u64_u32(vtrn2q_u32(a, b))};
  const uint64x2_t high[] = {vreinterpretq_u64_u32(vtrn1q_u32(c, d)), vreinterpretq_u64_u32(vtrn2q_u32(c, d))};
  const auto put = [&](int64_t j, uint64x2_t v) {
    vst1q_u8(static_cast<uint8_t*>(out) + j * apart_bytes, vreinterpretq_u8_u64(v));
  };
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {  // low[j]: columns j and 2 + j of rows 0 and 1
    put(j, vtrn1q_u64(low[j], high[j]));
    put(2 + j, vtrn2q_u64(low[j], high[j]));
  }
}

}  // namespace
}  // namespace apus::cpu
#endif
