// SPDX-License-Identifier: Apache-2.0
// Importance matrices in both of llama.cpp's forms, whole and damaged.
#include "gguf/imatrix.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "gguf/gguf_file.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {
using test::expect_says;

class Imatrix : public ::testing::Test {
 protected:
  ImportanceMatrix read(const std::string& bytes) const {
    write_file_atomic(folder.path / "m.dat", bytes);
    return ImportanceMatrix::read(folder.path / "m.dat");
  }
  std::string refused(const std::string& bytes) const {
    return test::refusal(Fault::Model, [&] { read(bytes); });
  }
  // Sums of squares of two experts of two numbers, the second of which no text met.
  ImportanceMatrix of_gguf(const std::string& type, std::vector<float> counts) const {
    GgufPlan plan;
    plan.settings = {{"general.type", GgufValue::text(type)}};
    const auto experts = static_cast<int64_t>(counts.size());
    plan.tensors = {{"blk.0.w.weight.in_sum2", GgmlType::F32, {2, 2}},
                    {"blk.0.w.weight.counts", GgmlType::F32, {experts, 1}}};
    GgufWriter writer(folder.path / "m.gguf", plan);
    const float sums[4] = {2, 4, 0, 0};
    writer.add(reinterpret_cast<const std::byte*>(sums), sizeof sums);
    writer.add(reinterpret_cast<const std::byte*>(counts.data()), experts * static_cast<int64_t>(sizeof(float)));
    writer.commit();
    return ImportanceMatrix::read(folder.path / "m.gguf");
  }
  test::Folder folder;
};

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// name, calls, values
std::string entry(const std::string& name, int32_t calls, const std::vector<float>& values) {
  std::string out =
      raw(static_cast<int32_t>(name.size())) + name + raw(calls) + raw(static_cast<int32_t>(values.size()));
  for (const float value : values) out += raw(value);
  return out;
}

TEST_F(Imatrix, OldEntriesAreMeansOfTheirCalls) {
  const ImportanceMatrix m =
      read(raw(int32_t{2}) + entry("blk.0.a.weight", 4, {2, 8, 0}) + entry("blk.0.b.weight", 0, {3, 5}));
  ASSERT_EQ(m.size(), 2u);
  const float* a = m.find("blk.0.a.weight", 3, 1);
  ASSERT_TRUE(a);
  EXPECT_EQ(std::vector<float>(a, a + 3), (std::vector<float>{0.5, 2, 0}));
  EXPECT_EQ(m.find("blk.0.b.weight", 1, 2)[1], 5);  // a stack of two
  EXPECT_EQ(m.find("blk.0.c.weight", 3, 1), nullptr);
  expect_says(test::refusal(Fault::Model, [&] { m.find("blk.0.a.weight", 4, 1); }), "has 3 values");
}

TEST_F(Imatrix, NewOnesCountEachExpert) {
  const ImportanceMatrix m = of_gguf("imatrix", {2, 0});
  const float* row = m.find("blk.0.w.weight", 2, 2);
  ASSERT_TRUE(row);
  EXPECT_EQ(std::vector<float>(row, row + 4), (std::vector<float>{1, 2, 1, 1}));
  expect_says(test::refusal(Fault::Model, [&] { of_gguf("model", {1, 1}); }), "no importance matrix");
  expect_says(test::refusal(Fault::Model, [&] { of_gguf("imatrix", {1, 1, 1}); }), "no counts that fit");
}

TEST_F(Imatrix, WhatIsNoneIsRefused) {
  const std::string good = raw(int32_t{1}) + entry("a", 1, {1, 2});
  for (size_t cut = 0; cut < good.size(); ++cut) expect_says(refused(good.substr(0, cut)), "m.dat");
  expect_says(refused(raw(int32_t{-5}) + "more"), "says -5");
  expect_says(refused(raw(int32_t{0})), "no entries");
  expect_says(refused(raw(int32_t{1}) + entry("a", 1, {-1})), "no mean of squares");
}

}  // namespace
}  // namespace apus
