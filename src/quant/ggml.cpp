// SPDX-License-Identifier: Apache-2.0
#include "quant/ggml.h"

#include "gguf/ggml_blocks.h"
#include "quant/codes.h"

namespace apus::quant {

namespace {
using Kind = CodeForm::Kind;

CodeBook4 book_of(GgmlType type) {
  CodeBook4 book = kWholeNumbers;
  for (size_t i = 0; i < book.size(); ++i) {
    if (type == GgmlType::Q4_0) book[i] -= 8;
    if (type == GgmlType::IQ4_NL || type == GgmlType::IQ4_XS) book[i] = static_cast<float>(ggml::kIq4Values[i]);
    if (type == GgmlType::MXFP4) book[i] = static_cast<float>(ggml::kTwiceE2m1[i]);
  }
  return book;
}

std::optional<CodeForm> ggml_form_of(GgmlType type) {
  switch (type) {
    case GgmlType::Q4_0:
    case GgmlType::IQ4_NL:
    case GgmlType::IQ4_XS:
    case GgmlType::MXFP4:
      return CodeForm{.kind = Kind::Book, .group = 32, .book = book_of(type)};
    case GgmlType::Q4_1:
    case GgmlType::Q4_K:
      return CodeForm{.kind = Kind::Book, .group = 32, .leasts = true, .book = book_of(type)};
    case GgmlType::Q8_0:
      return CodeForm{.kind = Kind::Signed, .group = 32};
    case GgmlType::Q5_0:
      return CodeForm{.kind = Kind::Signed, .group = 32, .bits = 5, .lowest = -16};
    case GgmlType::Q5_1:
    case GgmlType::Q5_K:
      return CodeForm{.kind = Kind::Signed, .group = 32, .leasts = true, .bits = 5, .lowest = 0};
    case GgmlType::Q2_K:
      return CodeForm{.kind = Kind::Signed, .group = 16, .leasts = true, .bits = 2, .lowest = 0};
    case GgmlType::Q3_K:
      return CodeForm{.kind = Kind::Signed, .group = 16, .bits = 3, .lowest = -4};
    case GgmlType::Q6_K:
      return CodeForm{.kind = Kind::Signed, .group = 16, .bits = 6, .lowest = -32};
    default:
      return std::nullopt;
  }
}

// A block's codes and what its groups are multiplied with: gguf/ggml_read.cpp, without the products.
struct BlockCodes {
  uint8_t* code;
  float *scale, *least;
};

// Blocks of 32; `high`: fifth bits, or null.
void small_codes(const std::byte* q, const std::byte* high, int less, uint8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = static_cast<uint8_t>(ggml::byte_at(q, j) & 15);
    code[j + 16] = static_cast<uint8_t>(ggml::byte_at(q, j) >> 4);
  }
  if (!high) return;
  for (int j = 0; j < ggml::kSmall; ++j) {
    const int fifth = (ggml::byte_at(high, j / 8) >> (j % 8) & 1) << 4;
    code[j] = static_cast<uint8_t>((code[j] | fifth) - less);
  }
}

void k_codes(const std::byte* b, const std::byte* high, const std::byte* qs, const BlockCodes& out) {
  const float d = ggml::half_at(b), dmin = ggml::half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = ggml::sub_block(b + 4, j);
    out.scale[j] = d * static_cast<float>(scale), out.least[j] = dmin * static_cast<float>(minimum);
    for (int l = 0; l < 32; ++l) {
      const int fifth = high ? (ggml::byte_at(high, l) >> j & 1) << 4 : 0;
      out.code[32 * j + l] = static_cast<uint8_t>((ggml::byte_at(qs, j / 2 * 32 + l) >> (j % 2) * 4 & 15) | fifth);
    }
  }
}

void iq4_xs_codes(const std::byte* b, const BlockCodes& out) {
  const float d = ggml::half_at(b);
  const int high = ggml::byte_at(b, 2) | ggml::byte_at(b, 3) << 8;
  for (int i = 0; i < 8; ++i) {
    const int scale = (ggml::byte_at(b, 4 + i / 2) >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4;
    out.scale[i] = d * static_cast<float>(scale - 32);
    small_codes(b + 8 + 16 * i, nullptr, 0, out.code + 32 * i);
  }
}

// Element e of 256, which lie as 128 of two bits in 32 bytes, twice.
int two_bits(const std::byte* q, int e) { return ggml::byte_at(q, e / 128 * 32 + e % 32) >> e % 128 / 32 * 2 & 3; }

void q2_codes(const std::byte* b, const BlockCodes& out) {
  const float d = ggml::half_at(b + 80), dmin = ggml::half_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    const int both = ggml::byte_at(b, g);
    out.scale[g] = d * static_cast<float>(both & 15), out.least[g] = dmin * static_cast<float>(both >> 4);
  }
  for (int e = 0; e < ggml::kSuper; ++e) out.code[e] = static_cast<uint8_t>(two_bits(b + 16, e));
}

void q3_codes(const std::byte* b, const BlockCodes& out) {
  const std::byte *mask = b, *scales = b + 96;
  const float d = ggml::half_at(b + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = ggml::byte_at(scales, g % 8) >> (g < 8 ? 0 : 4) & 15,
              high = ggml::byte_at(scales, 8 + g % 4) >> g / 4 * 2 & 3;
    out.scale[g] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int e = 0; e < ggml::kSuper; ++e) {
    const bool third = ggml::byte_at(mask, e % 32) >> e / 32 & 1;
    out.code[e] = static_cast<uint8_t>(two_bits(b + 32, e) - (third ? 0 : 4));
  }
}

void q6_codes(const std::byte* b, const BlockCodes& out) {
  const std::byte *low = b, *high = b + 128, *scales = b + 192;
  const float d = ggml::half_at(b + 208);
  for (int g = 0; g < 16; ++g) out.scale[g] = d * static_cast<float>(static_cast<int8_t>(scales[g]));
  uint8_t* code = out.code;
  for (int a = 0; a < 2; ++a)
    for (int s = 0; s < 4; ++s, code += 32)
      for (int l = 0; l < 32; ++l) {
        const int four = ggml::byte_at(low, 64 * a + 32 * (s & 1) + l) >> (s >> 1) * 4 & 15,
                  two = ggml::byte_at(high, 32 * a + l) >> 2 * s & 3;
        code[l] = static_cast<uint8_t>((four | two << 4) - 32);
      }
}

void block_codes(GgmlType type, const std::byte* b, const BlockCodes& out) {
  switch (type) {
    case GgmlType::Q4_0:
    case GgmlType::IQ4_NL:
      *out.scale = ggml::half_at(b);
      return small_codes(b + 2, nullptr, 0, out.code);
    case GgmlType::MXFP4:
      *out.scale = ggml::half_e8m0(ggml::byte_at(b, 0));
      return small_codes(b + 1, nullptr, 0, out.code);
    case GgmlType::Q4_1:
      *out.scale = ggml::half_at(b), *out.least = -ggml::half_at(b + 2);
      return small_codes(b + 4, nullptr, 0, out.code);
    case GgmlType::Q5_0:
      *out.scale = ggml::half_at(b);
      return small_codes(b + 6, b + 2, 16, out.code);
    case GgmlType::Q5_1:
      *out.scale = ggml::half_at(b), *out.least = -ggml::half_at(b + 2);
      return small_codes(b + 8, b + 4, 0, out.code);
    case GgmlType::Q8_0:
      *out.scale = ggml::half_at(b);
      return void(std::memcpy(out.code, b + 2, ggml::kSmall));
    case GgmlType::Q4_K:
      return k_codes(b, nullptr, b + 16, out);
    case GgmlType::Q5_K:
      return k_codes(b, b + 16, b + 48, out);
    case GgmlType::IQ4_XS:
      return iq4_xs_codes(b, out);
    case GgmlType::Q2_K:
      return q2_codes(b, out);
    case GgmlType::Q3_K:
      return q3_codes(b, out);
    default:
      return q6_codes(b, out);
  }
}

class Ggml final : public Matrix, public Coded {
 public:
  Ggml(std::shared_ptr<const GgufModel> model, const GgufSlice& slice)
      : Matrix({slice.rows, slice.width}), model_(std::move(model)), slice_(slice), type_(slice.type()) {}
  const char* format() const override { return ggml_form(type_).name; }
  int64_t bytes() const override { return slice_.bytes(); }
  void dequantise(int64_t row, int64_t count, float* out) const override { slice_.read_rows(row, count, out); }

  std::optional<CodeForm> code_form() const override { return ggml_form_of(type_); }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const GgmlForm& form = ggml_form(type_);
    const int64_t blocks = shape().columns / form.block, groups = form.block / ggml_form_of(type_)->group;
    for (int64_t r = 0; r < count; ++r) {
      const std::byte* from = slice_.row(row + r);
      for (int64_t b = 0; b < blocks; ++b, from += form.bytes) {
        const int64_t at = r * blocks + b;
        block_codes(
            type_, from,
            {out.code + at * form.block, out.scale + at * groups, out.least ? out.least + at * groups : nullptr});
      }
    }
  }

 private:
  std::shared_ptr<const GgufModel> model_;
  const GgufSlice slice_;
  const GgmlType type_;
};
}  // namespace

std::unique_ptr<Matrix> open_ggml(std::shared_ptr<const GgufModel> model, const GgufSlice& slice) {
  return std::make_unique<Ggml>(std::move(model), slice);
}

}  // namespace apus::quant
