// SPDX-License-Identifier: Apache-2.0
// AdaLoRA's ranks against PEFT's RankAllocator: the same weights, gradients and settings were given to both.
#include "train/rank_allocator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "nn/adalora.h"
#include "tests/refusal.h"

namespace apus {
namespace {

at::Tensor wave(at::IntArrayRef shape, double shift) {
  int64_t count = 1;
  for (const int64_t d : shape) count *= d;
  return (at::arange(count, at::kDouble) * 0.37 + shift).sin().to(at::kFloat).reshape(shape);
}

// Three layers [in, out] = [6, 5], [3, 7], [4, 4] of rank 4.
struct Layers : Module {
  Layers() {
    const double shifts[] = {0.1, 3.3, 5.2};
    const int64_t sides[][2] = {{6, 5}, {3, 7}, {4, 4}};
    for (size_t i = 0; i < 3; ++i) {
      AdaLora& one =
          child<AdaLora>(str("l", i), AdaLora::Spec{.in = sides[i][0], .out = sides[i][1], .rank = 4, .first_rank = 4});
      one.a().data = wave(one.a().full, shifts[i]).requires_grad_(true);
      one.e().data = wave(one.e().full, shifts[i] + 1).requires_grad_(true);
      one.b().data = wave(one.b().full, shifts[i] + 2).requires_grad_(true);
      for (Param* p : {&one.a(), &one.b(), &one.e()}) params.push_back(p);
      layers.push_back(&one);
    }
  }
  // An update with gradients that both were given, at a rate of 0.1.
  void step(int64_t t) {
    for (size_t k = 0; k < params.size(); ++k) {
      at::Tensor& p = params[k]->data;
      p.mutable_grad() = wave(p.sizes(), 0.7 * static_cast<double>(t) + 1.3 * static_cast<double>(k)) * 0.2 *
                         static_cast<double>(1 + k % 3);
      p.detach().sub_(p.grad() * 0.1);
    }
  }
  std::string ranks() {
    std::string out;
    for (AdaLora* layer : layers)
      for (int64_t i = 0; i < 4; ++i) out += layer->e().data[i].item<double>() != 0 ? '1' : '0';
    return out;
  }
  double values() {
    double sum = 0;
    for (AdaLora* layer : layers) sum += layer->e().data.sum().item<double>();
    return sum;
  }
  std::vector<Param*> params;
  std::vector<AdaLora*> layers;
};

constexpr AdaLoraSettings kSettings{
    .target_rank = 2, .first_steps = 1, .last_steps = 2, .every = 2, .beta1 = 0.85, .beta2 = 0.8, .total_steps = 10};
const std::vector<std::pair<std::string, double>> kPefts = {
    {"111111111111", 1.7891836166381836},    {"111111110001", 0.841489851474762},
    {"111111111111", 0.867977499961853},     {"111011100001", 0.8714068531990051},
    {"111111111111", 0.7815141081809998},    {"111011100000", 0.2715873718261719},
    {"111111111111", 0.21454232186079025},   {"111011100000", 0.10946178436279297},
    {"111011100000", -0.014600038528442383}, {"111011100000", -0.09124350547790527}};

TEST(RankAllocator, TakesAwayTheRanksThatPeftTakesAway) {
  Layers layers;
  RankAllocator ranks(layers, kSettings);
  ranks.plan(10);
  for (int64_t t = 1; t <= 10; ++t) {
    layers.step(t);
    ranks.updated(t, 1);
    EXPECT_EQ(layers.ranks(), kPefts[static_cast<size_t>(t - 1)].first) << t;
    EXPECT_NEAR(layers.values(), kPefts[static_cast<size_t>(t - 1)].second, 1e-5) << t;
  }
  EXPECT_EQ(ranks.ranks_left(), 6);
}

TEST(RankAllocator, GoesOnFromItsState) {
  for (const int64_t pause : {3, 6, 9}) {
    Layers layers;
    auto ranks = std::make_unique<RankAllocator>(layers, kSettings);
    for (int64_t t = 1; t <= 10; ++t) {
      layers.step(t);
      ranks->updated(t, 1);
      if (t != pause) continue;
      const auto state = ranks->state();
      for (const auto& [name, tensor] : state) EXPECT_TRUE(RankAllocator::is_state(name)) << name;
      ranks = std::make_unique<RankAllocator>(layers, kSettings);
      ranks->load(state);
    }
    EXPECT_EQ(layers.ranks(), kPefts.back().first) << pause;
    EXPECT_NEAR(layers.values(), kPefts.back().second, 1e-5) << pause;
  }
}

TEST(RankAllocator, PenaltyOfFactorsThatAreNotOrthogonal) {
  Layers layers;
  const at::Tensor penalty = RankAllocator(layers, kSettings).penalty();
  EXPECT_NEAR(penalty.item<double>(), 3.556161880493164, 1e-5);
  penalty.backward();
  EXPECT_NEAR(layers.layers[0]->a().data.grad().norm().item<double>(), 0.4891894459724426, 1e-5);
  EXPECT_NEAR(layers.layers[2]->b().data.grad().norm().item<double>(), 0.43027639389038086, 1e-5);
}

TEST(RankAllocator, BudgetFallsWithTheCubeOfWhatIsToGo) {
  const auto budget = [](int64_t step) { return rank_budget(kSettings, 12, 6, step); };
  EXPECT_EQ(budget(1).ranks, 12);
  EXPECT_FALSE(budget(1).taken_away);
  EXPECT_EQ(budget(2).ranks, 9);
  EXPECT_TRUE(budget(2).taken_away);
  EXPECT_FALSE(budget(3).taken_away);
  EXPECT_EQ(budget(8).ranks, 6);
  EXPECT_TRUE(budget(8).taken_away);
  EXPECT_EQ(budget(9).ranks, 6);
}

// Where PEFT fails: a target that is not below what there is takes nothing away.
TEST(RankAllocator, NothingToTakeAway) {
  const auto stay = ranks_that_stay({at::tensor({3.0f, 1.0f}), at::tensor({2.0f})}, 0);
  EXPECT_EQ(stay[0].sum().item<int64_t>() + stay[1].sum().item<int64_t>(), 3);
  const auto two = ranks_that_stay({at::tensor({3.0f, 1.0f}), at::tensor({2.0f})}, 2);
  EXPECT_EQ(two[0].sum().item<int64_t>(), 1);
  EXPECT_EQ(two[1].sum().item<int64_t>(), 0);
}

TEST(RankAllocator, ARunTooShortForItsPhases) {
  Layers layers;
  test::expect_says(test::refusal(Fault::Usage, [&] { RankAllocator(layers, kSettings).plan(3); }),
                    "--adalora_tinit 1 and --adalora_tfinal 2 leave no update of 3");
}

}  // namespace
}  // namespace apus
