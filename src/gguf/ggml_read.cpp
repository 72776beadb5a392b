// SPDX-License-Identifier: Apache-2.0
// Numbers from ggml's blocks, equal bit for bit: every product and sum is rounded to f32 in ggml's order.
#include "base/error.h"
#include "gguf/ggml_blocks.h"
#include "gguf/ggml_type.h"

namespace apus {

namespace ggml {
namespace {

// Element j of a block of 32 is the low nibble of byte j, element j + 16 the high one.
template <class Value>
void nibbles(const std::byte* q, float* out, const Value& value) {
  for (int j = 0; j < 16; ++j) {
    out[j] = value(byte_at(q, j) & 15, j);
    out[j + 16] = value(byte_at(q, j) >> 4, j + 16);
  }
}

// 0 or 16: the fifth bit of element j.
int fifth(const std::byte* bits, int j) { return (byte_at(bits, j / 8) >> (j % 8) & 1) << 4; }

void read_q4_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  nibbles(b + 2, out, [&](int q, int) { return static_cast<float>(q - 8) * d; });
}

void read_q4_1(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  nibbles(b + 4, out, [&](int q, int) { return static_cast<float>(q) * d + m; });
}

void read_q5_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  nibbles(b + 6, out, [&](int q, int j) { return static_cast<float>((q | fifth(b + 2, j)) - 16) * d; });
}

void read_q5_1(const std::byte* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  nibbles(b + 8, out, [&](int q, int j) { return static_cast<float>(q | fifth(b + 4, j)) * d + m; });
}

void read_q8_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int j = 0; j < kSmall; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

void read_iq4_nl(const std::byte* b, float* out) {
  const float d = half_at(b);
  nibbles(b + 2, out, [&](int q, int) { return d * static_cast<float>(kIq4Values[q]); });
}

void read_mxfp4(const std::byte* b, float* out) {
  const float d = half_e8m0(byte_at(b, 0));
  nibbles(b + 1, out, [&](int q, int) { return static_cast<float>(kTwiceE2m1[q]) * d; });
}

// Two bits of element 128 a + 32 s + l: bits 2 s of byte 32 a + l.
int two_bits(const std::byte* qs, int e) { return byte_at(qs, e / 128 * 32 + e % 32) >> e % 128 / 32 * 2 & 3; }

void read_q2_k(const std::byte* b, float* out) {
  const std::byte *scales = b, *qs = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int e = 0; e < kSuper; ++e) {
    const int both = byte_at(scales, e / 16);
    out[e] =
        d * static_cast<float>(both & 15) * static_cast<float>(two_bits(qs, e)) - dmin * static_cast<float>(both >> 4);
  }
}

void read_q3_k(const std::byte* b, float* out) {
  const std::byte *mask = b, *qs = b + 32, *scales = b + 96;
  const float d = half_at(b + 108);
  for (int e = 0; e < kSuper; ++e) {
    const int k = e / 16, low = byte_at(scales, k % 8) >> (k < 8 ? 0 : 4) & 15,
              high = byte_at(scales, 8 + k % 4) >> k / 4 * 2 & 3;
    const bool third = byte_at(mask, e % 32) >> e / 32 & 1;
    out[e] = d * static_cast<float>((low | high << 4) - 32) * static_cast<float>(two_bits(qs, e) - (third ? 0 : 4));
  }
}

// Q4_K and Q5_K: eight sub-blocks, two of which share bytes as low and high nibbles.
void read_k(const std::byte* b, const std::byte* high_bits, const std::byte* qs, float* out) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = sub_block(b + 4, j);
    const float step = d * static_cast<float>(scale), least = dmin * static_cast<float>(minimum);
    for (int l = 0; l < 32; ++l) {
      int q = byte_at(qs, j / 2 * 32 + l) >> (j % 2) * 4 & 15;
      if (high_bits) q |= (byte_at(high_bits, l) >> j & 1) << 4;
      out[32 * j + l] = step * static_cast<float>(q) - least;
    }
  }
}

void read_q4_k(const std::byte* b, float* out) { read_k(b, nullptr, b + 16, out); }
void read_q5_k(const std::byte* b, float* out) { read_k(b, b + 16, b + 48, out); }

void read_q6_k(const std::byte* b, float* out) {
  const std::byte *ql = b, *qh = b + 128, *scales = b + 192;
  const float d = half_at(b + 208);
  for (int e = 0; e < kSuper; ++e) {
    const int a = e / 128, s = e % 128 / 32, l = e % 32;
    const int low = byte_at(ql, 64 * a + 32 * (s & 1) + l) >> (s >> 1) * 4 & 15,
              high = byte_at(qh, 32 * a + l) >> 2 * s & 3;
    const auto scale = static_cast<float>(static_cast<int8_t>(scales[e / 16]));
    out[e] = d * scale * static_cast<float>((low | high << 4) - 32);
  }
}

template <class Bits, class Convert>
void read_plain(const std::byte* data, float* out, int64_t count, const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    out[i] = convert(bits);
  }
}

void (*block_reader(GgmlType type))(const std::byte*, float*) {
  switch (type) {
    case GgmlType::Q4_0:
      return read_q4_0;
    case GgmlType::Q4_1:
      return read_q4_1;
    case GgmlType::Q5_0:
      return read_q5_0;
    case GgmlType::Q5_1:
      return read_q5_1;
    case GgmlType::Q8_0:
      return read_q8_0;
    case GgmlType::Q2_K:
      return read_q2_k;
    case GgmlType::Q3_K:
      return read_q3_k;
    case GgmlType::Q4_K:
      return read_q4_k;
    case GgmlType::Q5_K:
      return read_q5_k;
    case GgmlType::Q6_K:
      return read_q6_k;
    case GgmlType::IQ2_XXS:
      return read_iq2_xxs;
    case GgmlType::IQ2_XS:
      return read_iq2_xs;
    case GgmlType::IQ2_S:
      return read_iq2_s;
    case GgmlType::IQ3_XXS:
      return read_iq3_xxs;
    case GgmlType::IQ3_S:
      return read_iq3_s;
    case GgmlType::IQ1_S:
      return read_iq1_s;
    case GgmlType::IQ1_M:
      return read_iq1_m;
    case GgmlType::IQ4_XS:
      return read_iq4_xs;
    case GgmlType::IQ4_NL:
      return read_iq4_nl;
    case GgmlType::MXFP4:
      return read_mxfp4;
    default:
      fail(Fault::Bug, "no blocks of the ggml type ", static_cast<uint32_t>(type));
  }
}

}  // namespace
}  // namespace ggml

void ggml_read(GgmlType type, const std::byte* blocks, float* out, int64_t count) {
  const GgmlForm& form = ggml_form(type);
  require(count % form.block == 0, Fault::Bug, count, " numbers are no whole blocks of ", form.name);
  if (type == GgmlType::F32) return void(std::memcpy(out, blocks, static_cast<size_t>(count) * sizeof(float)));
  if (type == GgmlType::F16) return ggml::read_plain<uint16_t>(blocks, out, count, f16_to_float);
  if (type == GgmlType::BF16) return ggml::read_plain<uint16_t>(blocks, out, count, bf16_to_float);
  const auto read = ggml::block_reader(type);
  for (int64_t i = 0; i < count; i += form.block, blocks += form.bytes) read(blocks, out + i);
}

}  // namespace apus
