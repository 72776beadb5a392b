// SPDX-License-Identifier: Apache-2.0
// What is remembered of a layer's first run, and that a second run finds it by who asks, not by when.
#include "nn/memo.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "nn/mlp.h"
#include "nn/training_step.h"
#include "tensor/noise.h"
#include "tests/refusal.h"

namespace apus {
namespace {

Step step_with(Memo& memo) {
  Step s;
  TrainingStep training;
  training.memo = &memo;
  set_training(s, std::move(training));
  return s;
}

TEST(Memo, ByModuleAndCall) {
  const Module a, b;
  const auto value = [](double v) { return at::full({1}, v); };
  Memo memo({});
  memo.remember(a, {value(1)}), memo.remember(b, {value(2), value(3)}), memo.remember(a, {value(4)});
  EXPECT_FALSE(memo.again());
  memo.begin_second_run();
  EXPECT_TRUE(memo.again());
  EXPECT_EQ(memo.recall(b)[1].item<double>(), 3);
  EXPECT_EQ(memo.recall(a)[0].item<double>(), 1);
  EXPECT_EQ(memo.recall(a)[0].item<double>(), 4);
  test::expect_says(test::refusal(Fault::Bug, [&] { memo.recall(a); }), "second run asks for a result");
}

TEST(Memo, KeepsTheKindsItIsToldTo) {
  const Memo all({}), nothing(Memo::kNothing), some({.product = true, .feed_forward = false, .attention = false});
  for (const auto kind : {ResultKind::Product, ResultKind::FeedForward, ResultKind::OnlyAdded, ResultKind::Attention}) {
    EXPECT_TRUE(all.keeps(kind));
    EXPECT_FALSE(nothing.keeps(kind));
    EXPECT_EQ(some.keeps(kind), kind == ResultKind::Product || kind == ResultKind::OnlyAdded);
  }
  EXPECT_EQ(memo_of(Step{}, ResultKind::Product), nullptr);
}

// The second run takes two layers the other way round, and multiplies nothing: their weights are others by then.
TEST(Memo, LinearLayersRecallTheirOwn) {
  Linear one({.in = 8, .out = 6}), two({.in = 8, .out = 6});
  one.weight().data = normal_noise({6, 8}, 0, 1, 1), two.weight().data = normal_noise({6, 8}, 0, 1, 2);
  const at::Tensor x = normal_noise({3, 8}, 0, 1, 3);
  Memo memo({});
  const Step s = step_with(memo);
  const at::Tensor a = one(x, s), b = two(x, s);
  memo.begin_second_run();
  one.weight().data = two.weight().data = normal_noise({6, 8}, 0, 1, 4);
  EXPECT_TRUE(at::equal(two(x, s), b));
  EXPECT_TRUE(at::equal(one(x, s), a));
}

// What is only added to something leaves its shape and takes no memory; the wide products follow their own switch.
TEST(Memo, OfAFeedForward) {
  Mlp mlp(4, 8, {});
  mlp.result_is_only_added();
  uint64_t seed = 0;
  mlp.visit([&](const std::string&, Param& p) { p.data = normal_noise(p.full, 0, 1, ++seed); });
  const at::Tensor x = normal_noise({3, 4}, 0, 1, 9);
  Memo memo({.product = true, .feed_forward = false, .attention = true});
  const Step s = step_with(memo);
  const at::Tensor y = mlp(x, s);
  EXPECT_GT(y.abs().max().item<double>(), 0);
  memo.begin_second_run();
  const at::Tensor again = mlp(x, s);
  EXPECT_EQ(again.sizes(), y.sizes());
  EXPECT_EQ(again.abs().max().item<double>(), 0);
  EXPECT_EQ(again.storage().nbytes(), 4u);
}

}  // namespace
}  // namespace apus
