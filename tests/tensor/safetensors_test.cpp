// SPDX-License-Identifier: Apache-2.0
// safetensors: what is written is read back; every kind of damage is refused with its own words.
#include "tensor/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

using test::expect_says;
using test::Folder;

void parse(const std::string& header, int64_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  bytes += header + std::string(static_cast<size_t>(data_bytes), 'x');
  parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes.data()), static_cast<int64_t>(bytes.size()), "f");
}

TEST(Safetensors, RoundTripOfEveryType) {
  Folder folder;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                          at::kByte, at::kBool})
    tensors.emplace_back(str("t.", c10::toString(type)), at::arange(0, 6).view({2, 3}).to(type));
  tensors.emplace_back("empty", at::arange(0, 0).to(at::kFloat));
  tensors.emplace_back("scalar", at::arange(3, 4).to(at::kFloat).view({}));
  write_safetensors(folder.path / "model.safetensors", tensors);
  const TensorFolder read(folder.path);
  ASSERT_EQ(read.names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read.tensor(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read.tensor(name), tensor)) << name;
  }
}

TEST(Safetensors, EightBitFloatsWidenExactly) {
  Folder folder;
  const std::string header =
      R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[4,7]}})";
  std::ofstream out(folder.path / "f8.safetensors", std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << header << std::string("\x38\xb8\x7e\x01", 4) << std::string("\x3c\x7b\x01", 3);
  out.close();
  const auto file = SafetensorsFile::open(folder.path / "f8.safetensors");
  const at::Tensor a = file->tensor("a").to(at::kDouble), b = file->tensor("b").to(at::kDouble);
  EXPECT_EQ(a[0].item<double>(), 1);
  EXPECT_EQ(a[1].item<double>(), -1);
  EXPECT_EQ(a[2].item<double>(), 448);
  EXPECT_EQ(a[3].item<double>(), std::ldexp(1, -9));
  EXPECT_EQ(b[0].item<double>(), 1);
  EXPECT_EQ(b[1].item<double>(), 57344);
  EXPECT_EQ(b[2].item<double>(), std::ldexp(1, -16));
}

TEST(Safetensors, DamageIsNamed) {
  const auto refused = [](const std::string& header, int64_t data_bytes, const char* why) {
    expect_says(test::refusal(Fault::Model, [&] { parse(header, data_bytes); }), why);
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_NO_THROW(parse("{" + a + "}", 8));
  refused("{" + a + "}", 4, "truncated");
  refused("{" + a + "}", 12, "belong to nothing");
  refused("{" + a + "," + a + "}", 8, "twice");
  refused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "overlaps");
  refused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}})", 16, "hole");
  refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "need 12");
  refused(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8, "not known");
  refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8, "overflows");
  refused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "negative");
  refused(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "all needed");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":[1]}})", 8, "unknown field");
  refused(R"({"a":[1,2]})", 8, "array");
  refused(R"({"a":)", 0, "no valid JSON");
  refused(std::string(200000, '['), 0, "array");
}

TEST(Safetensors, HeaderLengthIsChecked) {
  std::string bytes(16, '\xff');
  EXPECT_THROW(parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes.data()), 16, "f"), Error);
  EXPECT_THROW(parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes.data()), 3, "f"), Error);
}

TEST(Safetensors, MissingShardsAreListed) {
  Folder folder;
  std::ofstream(folder.path / "model.safetensors.index.json")
      << R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})";
  expect_says(test::refusal(Fault::Model, [&] { TensorFolder read(folder.path); }), "model-00002-of-00002.safetensors");
  std::ofstream(folder.path / "model.safetensors.index.json") << R"({"weight_map":{"a":"../../etc/passwd"}})";
  EXPECT_THROW(TensorFolder{folder.path}, Error);
}

TEST(Safetensors, AnUncommittedFileLeavesNothing) {
  Folder folder;
  { SafetensorsWriter writer(folder.path / "x.safetensors", {{"a", at::kFloat, {2}}}); }
  EXPECT_TRUE(fs::is_empty(folder.path));
}

}  // namespace
}  // namespace apus
