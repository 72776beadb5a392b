// SPDX-License-Identifier: Apache-2.0
// A model in several GGUF files is the model in one.
#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "gguf/model.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class GgufParts : public ::testing::Test {
 protected:
  fs::path part(int number) const { return folder.path / str("it-0000", number, "-of-00002.gguf"); }
  // The tensors [begin, end) of the file with all settings, which only the first part needs.
  void write_part(int number, size_t begin, size_t end, int64_t tensors) const {
    GgufPlan plan;
    if (number == 1)
      for (const auto& [key, value] : header.settings) plan.settings.emplace_back(key, value);
    plan.settings.emplace_back("split.no", GgufValue::u32(number - 1));
    plan.settings.emplace_back("split.count", GgufValue::u32(2));
    plan.settings.emplace_back("split.tensors.count", GgufValue::u32(tensors));
    for (size_t i = begin; i < end; ++i)
      plan.tensors.push_back({header.tensors[i].name, header.tensors[i].type, header.tensors[i].shape});
    GgufWriter writer(part(number), plan);
    for (size_t i = begin; i < end; ++i) writer.add(file.data() + header.tensors[i].begin, header.tensors[i].bytes);
    writer.commit();
  }
  void write(int64_t tensors) const {
    const size_t half = header.tensors.size() / 2;
    write_part(1, 0, half, tensors), write_part(2, half, header.tensors.size(), tensors);
  }
  const fs::path whole = test::source_dir() / "tests/data/gguf/qwen2_q8_0/model.gguf";
  const MappedFile file{whole};
  const GgufHeader header = parse_gguf(file.data(), file.size(), whole.string());
  test::Folder folder;
};

TEST_F(GgufParts, AreOneModel) {
  write(std::ssize(header.tensors));
  const auto one = GgufModel::open(whole), two = GgufModel::open(part(1));
  EXPECT_EQ(two->files(), 2u);
  EXPECT_EQ(two->config(), one->config());
  ASSERT_EQ(two->tensors().size(), one->tensors().size());
  for (const auto& [name, slice] : one->tensors()) {
    const GgufSlice* other = two->find(name);
    ASSERT_TRUE(other) << name;
    ASSERT_EQ(other->shape, slice.shape) << name;
    std::vector<float> want(static_cast<size_t>(slice.width)), got = want;
    slice.read_rows(0, 1, want.data()), other->read_rows(0, 1, got.data());
    EXPECT_EQ(got, want) << name;
    EXPECT_TRUE(two->maps(other->parts.at(0).data));
  }
}

TEST_F(GgufParts, WhatIsMissingIsNamed) {
  write(std::ssize(header.tensors));
  test::expect_says(test::refusal(Fault::Model, [&] { GgufModel::open(part(2)); }), "later part");
  fs::rename(part(2), folder.path / "away.gguf");
  test::expect_says(test::refusal(Fault::Model, [&] { GgufModel::open(part(1)); }), "part 2 of 2 is missing");
  fs::rename(part(1), folder.path / "it.gguf");
  test::expect_says(test::refusal(Fault::Model, [&] { GgufModel::open(folder.path / "it.gguf"); }), "NAME-00001-of-");
  write(std::ssize(header.tensors) + 1);
  test::expect_says(test::refusal(Fault::Model, [&] { GgufModel::open(part(1)); }), "split.tensors.count");
}

}  // namespace
}  // namespace apus
