// SPDX-License-Identifier: Apache-2.0
// GGUF files: what is written is read again, and everything that is wrong with one is refused in its own words.
#include "gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using test::expect_says;

GgufPlan small_plan() {
  GgufPlan plan;
  plan.settings = {
      {"general.architecture", GgufValue::text("qwen2")},
      {"a.small", {GgufKind::I8, int64_t{-3}}},
      {"a.wide", {GgufKind::U64, int64_t{1} << 40}},
      {"a.fraction", GgufValue::f32(0.5)},
      {"a.flag", GgufValue::flag(true)},
      {"a.words", GgufValue::list(GgufKind::String, GgufValue::Strings{"one", "", "three"})},
      {"a.numbers", GgufValue::list(GgufKind::F32, GgufValue::Numbers{1, -2.5})},
      {"a.kinds", GgufValue::list(GgufKind::I32, GgufValue::Integers{1, -1})},
  };
  plan.tensors = {{"x.weight", GgmlType::F32, {2, 3}}, {"y.weight", GgmlType::Q8_0, {2, 32}}};
  return plan;
}

std::string written(const GgufPlan& plan) {
  const test::Folder folder;
  GgufWriter writer(folder.path / "a.gguf", plan);
  const float x[6] = {1, 2, 3, 4, 5, 6};
  std::byte y[68] = {};
  y[1] = std::byte{7};
  writer.add(reinterpret_cast<const std::byte*>(x), 16);  // in parts
  writer.add(reinterpret_cast<const std::byte*>(x) + 16, 8);
  writer.add(y, 68);
  writer.commit();
  return read_file(folder.path / "a.gguf");
}

GgufHeader parsed(const std::string& bytes) {
  return parse_gguf(reinterpret_cast<const std::byte*>(bytes.data()), static_cast<int64_t>(bytes.size()), "a.gguf");
}

std::string refused(const std::string& bytes) {
  return test::refusal(Fault::Model, [&] { parsed(bytes); });
}

// The first place of `what` changed to `to`, of the same length.
std::string changed(std::string bytes, const std::string& what, const std::string& to, size_t behind = 0) {
  const size_t at = bytes.find(what);
  EXPECT_NE(at, std::string::npos);
  return bytes.replace(at + behind, to.size(), to);
}

std::string u64(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
std::string u32(uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

TEST(GgufFile, WhatIsWrittenIsReadAgain) {
  const std::string bytes = written(small_plan());
  const GgufHeader header = parsed(bytes);
  EXPECT_EQ(header.settings.size(), 8U);
  EXPECT_EQ(header.text("general.architecture"), "qwen2");
  EXPECT_EQ(header.integer("a.small"), -3);
  EXPECT_EQ(header.integer("a.wide"), int64_t{1} << 40);
  EXPECT_EQ(header.number("a.fraction"), 0.5);
  EXPECT_EQ(header.flag("a.flag"), true);
  EXPECT_EQ(*header.strings("a.words"), (GgufValue::Strings{"one", "", "three"}));
  EXPECT_EQ(*header.numbers("a.numbers"), (GgufValue::Numbers{1, -2.5}));
  EXPECT_EQ(*header.integers("a.kinds"), (GgufValue::Integers{1, -1}));
  EXPECT_EQ(header.integer("none"), std::nullopt);
  ASSERT_EQ(header.tensors.size(), 2U);
  const GgufTensor &x = header.tensors[0], &y = header.tensors[1];
  EXPECT_EQ(x.name, "x.weight");
  EXPECT_EQ(x.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(x.begin % 32, 0);
  EXPECT_EQ(y.begin, x.begin + 32);
  EXPECT_EQ(y.bytes, 68);
  float second;
  std::memcpy(&second, bytes.data() + x.begin + 4, 4);
  EXPECT_EQ(second, 2);
  EXPECT_EQ(bytes[static_cast<size_t>(y.begin) + 1], 7);
}

TEST(GgufFile, TheSecondVersionIsReadAndOthersAreNot) {
  const std::string bytes = written(small_plan());
  EXPECT_EQ(parsed(changed(bytes, "GGUF", u32(2), 4)).tensors.size(), 2U);
  expect_says(refused(changed(bytes, "GGUF", u32(1), 4)), "version 1");
  expect_says(refused(changed(bytes, "GGUF", u32(__builtin_bswap32(3)), 4)), "big-endian");
  expect_says(refused("ggjt" + bytes.substr(4)), "older format");
  expect_says(refused("PK\3\4" + bytes.substr(4)), "no GGUF file");
  expect_says(refused("version https://git-lfs.github.com/spec/v1"), "git lfs pull");
}

TEST(GgufFile, AnyCutIsRefused) {
  const std::string bytes = written(small_plan());
  const auto data_end = static_cast<size_t>(parsed(bytes).tensors[1].begin + 68);
  for (size_t length = 0; length < data_end; ++length) refused(bytes.substr(0, length));
}

TEST(GgufFile, LengthsBeyondTheFileAreRefused) {
  const std::string bytes = written(small_plan());
  expect_says(refused(changed(bytes, "GGUF", u64(1 << 17), 8)), "131072 tensors do not fit");
  expect_says(refused(changed(bytes, "GGUF", u64(UINT64_MAX), 8)), "more than");
  expect_says(refused(changed(bytes, "a.words", u64(1 << 20), 7 + 8)), "setting 'a.words'");
  expect_says(refused(changed(bytes, "a.small", u32(77), 7)), "kind 77");
}

TEST(GgufFile, TensorsThatMakeNoSenseAreRefused) {
  const std::string bytes = written(small_plan());
  const size_t name = std::string("y.weight").size();
  expect_says(refused(changed(bytes, "y.weight", "x.weight")), "appears twice");
  expect_says(refused(changed(bytes, "y.weight", u32(5), name)), "5 dimensions");
  expect_says(refused(changed(bytes, "y.weight", u64(33), name + 4)), "rows of 33 numbers are no whole blocks of 32");
  expect_says(refused(changed(bytes, "y.weight", u64(uint64_t{1} << 62), name + 12)), "overflows");
  expect_says(refused(changed(bytes, "y.weight", u64(64), name + 12)), "truncated");
  expect_says(refused(changed(bytes, "y.weight", u32(34), name + 20)),
              "the format TQ1_0 is not read; these are: F32, F16");
  expect_says(refused(changed(bytes, "y.weight", u64(33), name + 24)), "no multiple of the alignment");
  expect_says(refused(changed(bytes, "y.weight", u64(uint64_t{1} << 40), name + 24)), "truncated");
}

TEST(GgufFile, ASettingOfAnotherKindIsRefusedWhereItIsUsed) {
  const GgufHeader header = parsed(written(small_plan()));
  expect_says(test::refusal(Fault::Model, [&] { header.text("a.small"); }), "'a.small' must be a text");
  expect_says(test::refusal(Fault::Model, [&] { header.integer("a.words"); }), "must be a whole number");
}

TEST(GgufFile, NothingStaysOfAFileThatLacksTensors) {
  const test::Folder folder;
  {
    GgufWriter writer(folder.path / "a.gguf", small_plan());
    EXPECT_THROW(writer.commit(), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

}  // namespace
}  // namespace apus
