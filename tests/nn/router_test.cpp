// SPDX-License-Identifier: Apache-2.0
// What experts take of the tokens that are sent to them.
#include "nn/router.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace apus {
namespace {

// Six tokens, two experts each of four: expert 0 is chosen by five.
ops::Routing routing() {
  return {at::tensor({.9, .1, .6, .4, .8, .2, .3, .7, .5, .5, .7, .3}, at::kFloat).view({6, 2}),
          at::tensor({0, 1, 0, 2, 0, 1, 0, 3, 2, 0, 1, 3}, at::kLong).view({6, 2})};
}
std::vector<float> weights(const ExpertCapacity& capacity) {
  const at::Tensor w = within_capacity(routing(), 4, capacity).weight_Tk.contiguous();
  return {w.data_ptr<float>(), w.data_ptr<float>() + w.numel()};
}

TEST(ExpertCapacity, TheTokensThatLikeAnExpertBestStay) {
  // Twelve choices of four experts: three each. Of expert 0's, .9, .8 and .6 stay.
  EXPECT_EQ(weights({.factor = 1}), (std::vector<float>{.9f, .1f, .6f, .4f, .8f, .2f, 0, .7f, .5f, 0, .7f, .3f}));
  // One and a half are two.
  EXPECT_EQ(weights({.factor = 0.5}), (std::vector<float>{.9f, 0, 0, .4f, .8f, .2f, 0, .7f, .5f, 0, .7f, .3f}));
}

TEST(ExpertCapacity, OrThoseThatComeFirst) {
  EXPECT_EQ(weights({.factor = 0.5, .by_position = true}),
            (std::vector<float>{.9f, .1f, .6f, .4f, 0, .2f, 0, .7f, .5f, 0, 0, .3f}));
}

TEST(ExpertCapacity, NoneIsDroppedWhereThereIsRoom) {
  EXPECT_TRUE(at::equal(within_capacity(routing(), 4, {}).weight_Tk, routing().weight_Tk));
  EXPECT_TRUE(at::equal(within_capacity(routing(), 4, {.factor = 4}).weight_Tk, routing().weight_Tk));
}

TEST(ExpertCapacity, NoExpertTakesMoreAndGradientsReachWhatStays) {
  at::Tensor logits = at::randn({64, 8});
  logits.select(1, 3).add_(4);  // a favourite, of more tokens than it takes
  logits.requires_grad_(true);
  const ops::Routing kept = within_capacity(route(logits, {}, 2, {}), 8, {.factor = 1.25});
  const auto room = static_cast<int64_t>(std::ceil(64.0 * 2 / 8 * 1.25));
  for (int64_t e = 0; e < 8; ++e) EXPECT_LE(((kept.expert_Tk == e) & (kept.weight_Tk > 0)).sum().item<int64_t>(), room);
  EXPECT_GT((kept.weight_Tk == 0).sum().item<int64_t>(), 0);
  kept.weight_Tk.sum().backward();
  EXPECT_TRUE(logits.grad().defined());
}

}  // namespace
}  // namespace apus
