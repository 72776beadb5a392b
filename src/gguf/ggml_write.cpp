// SPDX-License-Identifier: Apache-2.0
// Numbers into ggml's blocks, by the rules of its reference quantisers: every sum runs through the block in order in
// f32, so the bytes are equal.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "gguf/ggml_blocks.h"
#include "gguf/ggml_type.h"

namespace apus {

namespace ggml {
namespace {

template <class Level>
void put_nibbles(std::byte* q, const float* x, const Level& level) {
  for (int j = 0; j < 16; ++j) put(q, j, level(x[j]) | level(x[j + 16]) << 4);
}

void put_five_bits(std::byte* high, std::byte* q, const std::array<int, kSmall>& level) {
  uint32_t bits = 0;
  for (int j = 0; j < 16; ++j) put(q, j, (level[j] & 15) | (level[j + 16] & 15) << 4);
  for (int j = 0; j < kSmall; ++j) bits |= static_cast<uint32_t>(level[j] >> 4) << j;
  std::memcpy(high, &bits, sizeof bits);
}

void write_q4_0(const float* x, std::byte* b) {
  const float d = signed_largest(x, kSmall) / -8, id = inverse(d);
  put_half(b, d);
  put_nibbles(b + 2, x, [&](float v) { return std::min(15, static_cast<int>(v * id + 8.5F)); });
}

void write_q4_1(const float* x, std::byte* b) {
  const auto [least, most] = extent(x);
  const float d = (most - least) / 15, id = inverse(d), m = least;
  put_half(b, d), put_half(b + 2, m);
  put_nibbles(b + 4, x, [&](float v) { return std::min(15, static_cast<int>((v - m) * id + 0.5F)); });
}

void write_q5_0(const float* x, std::byte* b) {
  const float d = signed_largest(x, kSmall) / -16, id = inverse(d);
  std::array<int, kSmall> level;
  for (int j = 0; j < kSmall; ++j) level[j] = std::min(31, static_cast<int>(x[j] * id + 16.5F));
  put_half(b, d);
  put_five_bits(b + 2, b + 6, level);
}

void write_q5_1(const float* x, std::byte* b) {
  const auto [least, most] = extent(x);
  const float d = (most - least) / 31, id = inverse(d);
  std::array<int, kSmall> level;
  for (int j = 0; j < kSmall; ++j) level[j] = std::min(31, static_cast<int>((x[j] - least) * id + 0.5F));
  put_half(b, d), put_half(b + 2, least);
  put_five_bits(b + 4, b + 8, level);
}

void write_q8_0(const float* x, std::byte* b) {
  const float d = std::fabs(signed_largest(x, kSmall)) / 127, id = inverse(d);
  put_half(b, d);
  for (int j = 0; j < kSmall; ++j) put(b, 2 + j, static_cast<int>(std::round(x[j] * id)));
}

void write_mxfp4(const float* x, std::byte* b) {
  const float most = std::fabs(signed_largest(x, kSmall));
  const int exponent = most > 0 ? std::clamp(static_cast<int>(std::floor(std::log2(most))) - 2 + 127, 0, 254) : 0;
  const float d = half_e8m0(static_cast<uint8_t>(exponent));
  put(b, 0, exponent);
  put_nibbles(b + 1, x, [&](float v) {
    int best = 0;
    float least = std::fabs(v);
    for (int i = 1; i < 16; ++i)
      if (const float error = std::fabs(static_cast<float>(kTwiceE2m1[i]) * d - v); error < least)
        best = i, least = error;
    return best;
  });
}

template <class Convert>
void write_halves(const float* x, std::byte* out, int64_t count, const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = convert(x[i]);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

// Of blocks whose numbers' importance is not asked for.
template <void (*Write)(const float*, std::byte*)>
void plainly(const float* x, const float*, std::byte* b) {
  Write(x, b);
}

void (*block_writer(GgmlType type))(const float*, const float*, std::byte*) {
  switch (type) {
    case GgmlType::Q4_0:
      return plainly<write_q4_0>;
    case GgmlType::Q4_1:
      return plainly<write_q4_1>;
    case GgmlType::Q5_0:
      return plainly<write_q5_0>;
    case GgmlType::Q5_1:
      return plainly<write_q5_1>;
    case GgmlType::Q8_0:
      return plainly<write_q8_0>;
    case GgmlType::Q4_K:
      return write_q4_k;
    case GgmlType::Q5_K:
      return write_q5_k;
    case GgmlType::Q6_K:
      return write_q6_k;
    case GgmlType::IQ4_NL:
      return write_iq4_nl;
    case GgmlType::IQ4_XS:
      return write_iq4_xs;
    case GgmlType::MXFP4:
      return plainly<write_mxfp4>;
    default:
      fail(Fault::Bug, "blocks of the ggml type ", ggml_type_name(static_cast<uint32_t>(type)), " are not written");
  }
}

}  // namespace
}  // namespace ggml

void ggml_write(GgmlType type, const float* numbers, std::byte* blocks, int64_t count, const float* importance,
                int64_t width) {
  const GgmlForm& form = ggml_form(type);
  require(count % form.block == 0, Fault::Bug, count, " numbers are no whole blocks of ", form.name);
  if (type == GgmlType::F32) return void(std::memcpy(blocks, numbers, static_cast<size_t>(count) * sizeof(float)));
  if (type == GgmlType::F16) return ggml::write_halves(numbers, blocks, count, float_to_f16);
  if (type == GgmlType::BF16) return ggml::write_halves(numbers, blocks, count, float_to_bf16);
  const auto write = ggml::block_writer(type);
  for (int64_t i = 0; i < count; i += form.block, blocks += form.bytes)
    write(numbers + i, importance ? importance + i % width : nullptr, blocks);
}

}  // namespace apus
