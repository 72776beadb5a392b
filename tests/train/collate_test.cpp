// SPDX-License-Identifier: Apache-2.0
// Samples one behind the other: labels are the next tokens, never across two samples.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/batch.h"

namespace apus {
namespace {

TEST(Collate, ShiftsLabelsWithinSamples) {
  Sample a{.ids = {1, 2, 3}, .trained = {0, 0, 1}, .channel = "x"};
  Sample b{.ids = {4, 5}, .trained = {0, 1}, .weights = {1.0f, 0.5f}};
  Sample c{.ids = {6, 7, 8}, .trained = {0, 1, 1}, .weights = {0.0f, 0.0f, 2.0f}};
  const Batch batch = collate({a, b, c});
  const auto as = [](const at::Tensor& t) {
    const auto* p = t.data_ptr<int64_t>();
    return std::vector<int64_t>(p, p + t.numel());
  };
  EXPECT_EQ(as(batch.id_T), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(as(batch.label_T), (std::vector<int64_t>{-100, 3, -100, 5, -100, 7, 8, -100}));
  const auto* w = batch.weight_T.data_ptr<float>();
  EXPECT_EQ(std::vector<float>(w, w + 8), (std::vector<float>{0, 1, 0, 0.5f, 0, 0, 2, 0}));
  EXPECT_EQ(as(batch.step.position), (std::vector<int64_t>{0, 1, 2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(batch.step.length_q, (std::vector<int32_t>{3, 2, 3}));
  EXPECT_EQ(batch.trained, 4);  // a weight of 0 still counts as a label
  EXPECT_EQ(batch.channels, (std::vector<std::string>{"x", "", ""}));
}

TEST(Collate, KeepsGroupsAndColumns) {
  Sample chosen{.ids = {1, 2, 3}, .trained = {0, 1, 1}, .columns = {{"margin", 0.5f}}};
  Sample rejected{.ids = {1, 4}, .trained = {0, 1}, .grouped = true};
  Sample alone{.ids = {7, 8}, .trained = {0, 1}, .columns = {{"label", 1.0f}}, .token_columns = {{"old", {-1, -2}}}};
  const Batch batch = collate({chosen, rejected, alone}).to(at::kCPU);
  EXPECT_EQ(batch.groups, (std::vector<int64_t>{0, 0, 1}));
  const auto shown = [](const at::Tensor& t) {
    std::string out;
    for (int64_t i = 0; i < t.numel(); ++i) out += str(t.data_ptr<float>()[i], " ");
    return out;
  };
  ASSERT_EQ(batch.sequence_columns.size(), 2u);
  EXPECT_EQ(shown(batch.sequence_columns.at("margin")), "0.5 nan nan ");
  EXPECT_EQ(shown(batch.sequence_columns.at("label")), "nan nan 1 ");
  EXPECT_EQ(shown(batch.token_columns.at("old")), "nan nan nan nan nan -1 -2 ");
  alone.token_columns["old"].pop_back();
  EXPECT_THROW(collate({alone}), Error);
}

TEST(Collate, WithoutChannels) { EXPECT_TRUE(collate({Sample{.ids = {1, 2}, .trained = {0, 1}}}).channels.empty()); }

}  // namespace
}  // namespace apus
