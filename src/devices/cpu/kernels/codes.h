// SPDX-License-Identifier: Apache-2.0
// Codes of quantised weights as the bf16 numbers they stand for. Of four bits, each group's sixteen numbers are
// computed and rounded once, and looked up by whole vectors of codes; of eight bits each number is computed.
#pragma once

#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {
namespace {

constexpr int64_t kMostGroups = kCodeStretch / 16 + 1;

inline Floats half_floats(const uint16_t* p) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__ARM_NEON)
  return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
  Floats out;
  for (int i = 0; i < kWidth; ++i) {
    const uint32_t size = p[i] & 0x7fffu;
    // By a product, which makes normal numbers of those below 2^-14 as well.
    const uint32_t bits = size << 13;
    float value;
    std::memcpy(&value, &bits, 4);
    value *= 0x1p112f;
    out[i] = p[i] & 0x8000u ? -value : value;
  }
  return out;
#endif
}

// What a row's groups are computed with, from the group of column `first` on.
class Groups {
 public:
  Groups(const CodeScales& s, int64_t first, int64_t columns) : width_(s.group), left_(s.group - first % s.group) {
    const int64_t count = (first % s.group + columns - 1) / s.group + 1;
    read(s.scale, s.wide, count, s.factor, scale_);
    if (s.zero) read(s.zero, s.wide, count, 1, zero_);
    if (s.least) read(s.least, s.wide, count, s.least_factor, least_);
    zeros_ = s.zero, leasts_ = s.least;
  }
  Floats number(Floats value) const {
    if (zeros_) value -= zero_[at_];
    value *= scale_[at_];
    if (leasts_) value -= least_[at_];
    return value;
  }
  // Goes on by so many columns: whether another group begins there.
  bool pass(int64_t columns) {
    left_ -= columns;
    if (left_ > 0) return false;
    left_ = width_, ++at_;
    return true;
  }

 private:
  static void read(const void* from, bool wide, int64_t count, float factor, float* to) {
    for (int64_t i = 0; i < count; i += kWidth) {
      const Floats v =
          wide ? load(static_cast<const float*>(from) + i) : half_floats(static_cast<const uint16_t*>(from) + i);
      store(to + i, v * factor);
    }
  }
  static constexpr int64_t kRoom = kMostGroups + 16;
  int64_t width_, left_, at_ = 0;
  bool zeros_, leasts_;
  float scale_[kRoom] = {}, zero_[kRoom], least_[kRoom];
};

// The sixteen numbers of a group, to look up 32 codes in.
class CodeTable {
 public:
  void fill(const float* book, const Groups& groups) {
    alignas(32) bf16 number[16];
    for (int i = 0; i < 16; i += kWidth) store(number + i, groups.number(load(book + i)));
#if defined(__AVX512BW__)
    table_ = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(number)));
#elif defined(__AVX2__)
    const __m256i all = _mm256_load_si256(reinterpret_cast<const __m256i*>(number)),
                  low = _mm256_and_si256(all, _mm256_set1_epi16(0xff)), high = _mm256_srli_epi16(all, 8);
    // Bytes 0-7 and 8-15 of each end in one half.
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8);
    low_ = _mm256_permute2x128_si256(bytes, bytes, 0x00), high_ = _mm256_permute2x128_si256(bytes, bytes, 0x11);
#elif defined(__ARM_NEON)
    table_ = vld2q_u8(reinterpret_cast<const uint8_t*>(number));
#else
    std::memcpy(number_, number, sizeof number);
#endif
  }
  // 32 codes in halves of 16 bytes (kernels.h).
  void look_up(const uint8_t* codes, bf16* y) const {
#if defined(__AVX2__)
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)), half = _mm_set1_epi8(15),
                  low = _mm_and_si128(all, half), high = _mm_and_si128(_mm_srli_epi16(all, 4), half),
                  first = _mm_unpacklo_epi32(low, high), second = _mm_unpackhi_epi32(low, high);
#if defined(__AVX512BW__)
    const __m512i words = _mm512_cvtepu8_epi16(_mm256_set_m128i(second, first));
    _mm512_storeu_si512(y, _mm512_permutexvar_epi16(words, table_));
#else
    look_up16(first, y), look_up16(second, y + 16);
#endif
#elif defined(__ARM_NEON)
    const uint8x16_t all = vld1q_u8(codes);
    const uint32x4_t low = vreinterpretq_u32_u8(vandq_u8(all, vdupq_n_u8(15))),
                     high = vreinterpretq_u32_u8(vshrq_n_u8(all, 4));
    look_up16(vreinterpretq_u8_u32(vzip1q_u32(low, high)), y);
    look_up16(vreinterpretq_u8_u32(vzip2q_u32(low, high)), y + 16);
#else
    for (int i = 0; i < 32; ++i) y[i] = number_[codes[i / 8 * 4 + i % 4] >> (i % 8 < 4 ? 0 : 4) & 15];
#endif
  }

 private:
#if defined(__AVX512BW__)
  __m512i table_;
#elif defined(__AVX2__)
  void look_up16(__m128i codes, bf16* y) const {
    const __m256i code = _mm256_cvtepu8_epi16(codes);
    // Where the highest bit of an index is set, a zero is looked up.
    const __m256i low = _mm256_shuffle_epi8(low_, _mm256_or_si256(code, _mm256_set1_epi16(-32768)));
    const __m256i high =
        _mm256_shuffle_epi8(high_, _mm256_or_si256(_mm256_slli_epi16(code, 8), _mm256_set1_epi16(0x80)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm256_or_si256(low, high));
  }
  __m256i low_, high_;
#elif defined(__ARM_NEON)
  void look_up16(uint8x16_t code, bf16* y) const {
    vst2q_u8(reinterpret_cast<uint8_t*>(y),
             uint8x16x2_t{vqtbl1q_u8(table_.val[0], code), vqtbl1q_u8(table_.val[1], code)});
  }
  uint8x16x2_t table_;  // lower and upper bytes
#else
  bf16 number_[16];
#endif
};

void codes4(int64_t first, int64_t columns, const uint8_t* codes, const CodeScales& scales, const float* book,
            bf16* y) {
  Groups groups(scales, first, columns);
  CodeTable table;
  table.fill(book, groups);
  for (int64_t c = 0; c < columns; c += 32, codes += 16, y += 32) {
    table.look_up(codes, y);
    if (groups.pass(32)) table.fill(book, groups);
  }
}

template <bool kE4m3>
inline Floats byte_values(const uint8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if constexpr (!kE4m3) return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  // As f16, whose exponents are larger by eight.
  const __m256i w = _mm256_cvtepu8_epi16(bytes);
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(w, 8), _mm256_set1_epi16(-32768)),
                size = _mm256_and_si256(_mm256_slli_epi16(w, 7), _mm256_set1_epi16(0x3f80));
  return (Floats)_mm512_cvtph_ps(_mm256_or_si256(sign, size));
#elif defined(__ARM_NEON)
  if constexpr (!kE4m3) return byte_floats(reinterpret_cast<const int8_t*>(p));
  const uint16x4_t w = four_bytes(p), sign = vand_u16(vshl_n_u16(w, 8), vdup_n_u16(0x8000)),
                   size = vand_u16(vshl_n_u16(w, 7), vdup_n_u16(0x3f80));
  return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(sign, size)));
#else
  using SignedBytes = int8_t __attribute__((vector_size(kWidth)));
  using PlainBytes = uint8_t __attribute__((vector_size(kWidth)));
  if constexpr (!kE4m3) {
    SignedBytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Floats);
  } else {
    PlainBytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    const Words w = __builtin_convertvector(bytes, Words), size = w & 0x7f;
    const Floats small = __builtin_convertvector((Ints)size, Floats) * 0x1p-17f;
    const Floats plain = size < 8 ? small : (Floats)((size << 20) + (112u << 23));
    return (Floats)((Words)plain | (w & 0x80) << 24);
  }
#endif
}

template <bool kE4m3>
void codes8(int64_t first, int64_t columns, const uint8_t* codes, const CodeScales& scales, bf16* y) {
  Groups groups(scales, first, columns);
  for (int64_t c = 0; c < columns; c += 16) {
    for (int i = 0; i < 16; i += kWidth) store(y + c + i, groups.number(byte_values<kE4m3>(codes + c + i)));
    groups.pass(16);
  }
}

template <bool kE4m3>
void row8(int64_t columns, const uint8_t* codes, float scale, bf16* y) {
  for (int64_t c = 0; c < columns; c += kWidth) store(y + c, byte_values<kE4m3>(codes + c) * scale);
}

}  // namespace
}  // namespace apus::cpu
