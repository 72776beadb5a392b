// SPDX-License-Identifier: Apache-2.0
// ggml's number formats against a file that llama.cpp's own code agrees with: numbers equal bit for bit, bytes equal.
#include "gguf/ggml_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/files.h"
#include "base/half.h"
#include "gguf/gguf_file.h"
#include "tensor/safetensors_header.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

struct TypesFile {
  explicit TypesFile(const std::string& name = "types")
      : gguf(test::source_dir() / "tests/data/gguf" / (name + ".gguf")),
        golden(test::source_dir() / "tests/data/gguf" / (name + ".golden.safetensors")) {}
  MappedFile gguf, golden;
  GgufHeader header = parse_gguf(gguf.data(), gguf.size(), "types.gguf");
  SafetensorsHeader numbers = parse_safetensors_header(golden.data(), golden.size(), "golden");

  const float* floats(const std::string& name) const {
    return reinterpret_cast<const float*>(golden.data() + numbers.tensors.at(name).begin);
  }
  static std::string type_of(const GgufTensor& t) { return t.name.substr(0, t.name.find('.')); }
};

TEST(GgmlType, NumbersAreThoseOfTheGoldenFileBitForBit) {
  const TypesFile file;
  ASSERT_EQ(file.header.tensors.size(), 14U);
  for (const GgufTensor& t : file.header.tensors) {
    std::vector<float> out(static_cast<size_t>(t.numel()));
    ggml_read(t.type, file.gguf.data() + t.begin, out.data(), t.numel());
    const std::string type = TypesFile::type_of(t);
    EXPECT_EQ(std::memcmp(out.data(), file.floats("dequant/" + type), out.size() * 4), 0) << type;
  }
}

TEST(GgmlType, BytesAreThoseOfTheGoldenFile) {
  const TypesFile file;
  int written = 0;
  for (const GgufTensor& t : file.header.tensors) {
    const std::string type = TypesFile::type_of(t);
    if (!ggml_form(t.type).writable) continue;
    const std::string from = file.numbers.tensors.count("original/" + type) ? "original/" + type : "original";
    std::vector<std::byte> out(static_cast<size_t>(t.bytes));
    ggml_write(t.type, file.floats(from), out.data(), t.numel());
    EXPECT_EQ(std::memcmp(out.data(), file.gguf.data() + t.begin, out.size()), 0) << type;
    ++written;
  }
  EXPECT_EQ(written, 12);
}

// llama.cpp's bytes where it knows how much each number of a row matters; and its IQ formats, read by its own code.
TEST(GgmlType, ImportanceAndTheIqFormats) {
  const TypesFile file("weighed");
  ASSERT_EQ(file.header.tensors.size(), 14U);
  int written = 0;
  for (const GgufTensor& t : file.header.tensors) {
    std::vector<float> out(static_cast<size_t>(t.numel()));
    ggml_read(t.type, file.gguf.data() + t.begin, out.data(), t.numel());
    EXPECT_EQ(std::memcmp(out.data(), file.floats("dequant/" + t.name), out.size() * 4), 0) << t.name;
    if (!ggml_form(t.type).writable) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes));
    const float* importance = t.name.ends_with(".weighed") ? file.floats("importance") : nullptr;
    ggml_write(t.type, file.floats("original"), bytes.data(), t.numel(), importance, t.shape.back());
    EXPECT_EQ(std::memcmp(bytes.data(), file.gguf.data() + t.begin, bytes.size()), 0) << t.name;
    ++written;
  }
  EXPECT_EQ(written, 7);
}

// Numbers of zero, and blocks with one number that is not.
TEST(GgmlType, ZerosStayZeros) {
  for (const uint32_t id : {0, 1, 30, 2, 3, 6, 7, 8, 12, 13, 14, 20, 23, 39}) {
    const GgmlForm& form = *find_ggml_form(id);
    std::vector<float> numbers(512, 0.F), again(512, 1.F);
    numbers[300] = -2;
    std::vector<std::byte> bytes(static_cast<size_t>(ggml_bytes(form, 512)));
    ggml_write(form.type, numbers.data(), bytes.data(), 512);
    ggml_read(form.type, bytes.data(), again.data(), 512);
    for (size_t i = 0; i < 512; ++i) EXPECT_NEAR(again[i], numbers[i], 0.08) << form.name << " " << i;
  }
}

TEST(GgmlType, TypesThatAreNotWrittenOrKnownAreSaidSo) {
  EXPECT_EQ(find_ggml_form(34), nullptr);
  EXPECT_EQ(ggml_type_name(34), "TQ1_0");
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(14), "Q6_K");
  EXPECT_EQ(ggml_type_name(4242), "number 4242");
  EXPECT_FALSE(ggml_form(GgmlType::Q2_K).writable);
}

TEST(Half, EveryNumberOfTwoBytesComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (const float value = f16_to_float(half); !std::isnan(value))
      EXPECT_EQ(float_to_f16(value), half);
    else
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
    if (const float value = bf16_to_float(half); !std::isnan(value)) EXPECT_EQ(float_to_bf16(value), half);
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(float_to_f16(1 + 0x1p-11F), 0x3C00);    // a tie
  EXPECT_EQ(float_to_f16(1 + 0x1.8p-11F), 0x3C01);  // above it
  EXPECT_EQ(float_to_f16(1 + 0x3p-11F), 0x3C02);    // a tie, up to even
  EXPECT_EQ(float_to_f16(65519), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520), 0x7C00);
  EXPECT_EQ(float_to_f16(0x1p-25F), 0);  // half of the least number
  EXPECT_EQ(float_to_f16(0x1.8p-25F), 1);
  EXPECT_EQ(float_to_f16(-0x1.ffcp-15F), 0x8400);  // subnormal up to the least normal one
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(float_to_bf16(1 + 0x1p-8F), 0x3F80);
  EXPECT_EQ(float_to_bf16(1 + 0x3p-8F), 0x3F82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace apus
