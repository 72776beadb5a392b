// SPDX-License-Identifier: Apache-2.0
// Answers to one prompt that is computed once are what they are to a prompt of their own:
// hidden states, losses, gradients.
#include "train/shared_prefix.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>

#include "algos/cpo.h"
#include "algos/dpo.h"
#include "algos/orpo.h"
#include "algos/rm.h"
#include "algos/simpo.h"
#include "checkpoint/adapter.h"
#include "models/spec/family.h"
#include "tests/algos/critic.h"
#include "tests/algos/preference_steps.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using golden::Case;

// Groups of so many answers each; prompts of other lengths, one of which the answers do not share, and answers too.
Samples answers_to_prompts(const std::vector<int>& groups) {
  Samples out;
  int32_t next = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    for (int a = 0; a < groups[g]; ++a) {
      Sample& sample = out.emplace_back();
      const bool apart = g == 1 && a == 1;
      for (int32_t i = 0; i < 9 + static_cast<int32_t>(g); ++i) sample.ids.push_back(10 + (apart ? 3 : 0) + i);
      const size_t prompt = sample.ids.size();
      for (int32_t i = 0; i < 2 + 3 * a; ++i) sample.ids.push_back(12 + (next += 7) % 40);
      sample.trained.assign(sample.ids.size(), 1);
      std::fill_n(sample.trained.begin(), prompt, 0);
      sample.grouped = a > 0;
    }
  return out;
}

TEST(SharedPrefix, LaysOutAStemAndItsBranches) {
  Samples samples = {{.ids = {1, 2, 3, 4, 5}, .trained = {0, 0, 0, 1, 1}},
                     {.ids = {1, 2, 3, 9}, .trained = {0, 0, 0, 1}},
                     {.ids = {7, 8}, .trained = {0, 1}}};
  samples[1].grouped = true;
  const auto tree = shared_prefixes(collate(samples));
  const auto longs = [](const at::Tensor& x) {
    return std::vector<int64_t>(x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + x.numel());
  };
  EXPECT_EQ(longs(tree->row_U), (std::vector<int64_t>{0, 1, 2, 3, 4, 8, 9, 10}));
  EXPECT_EQ(longs(tree->place_T), (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7}));
  EXPECT_EQ(longs(tree->key_K), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7}));
  EXPECT_EQ(tree->step.begin_q, (std::vector<int32_t>{0, 3, 3, 0}));
  EXPECT_EQ(tree->step.length_q, (std::vector<int32_t>{3, 2, 1, 2}));
  EXPECT_EQ(shared_prefixes(collate({samples[0], samples[2]})), nullptr) << "they are no group";
}

struct Pass {
  at::Tensor hidden_TD;
  std::map<std::string, at::Tensor> gradients;
};

Pass pass_of(Model& model, bool shared) {
  const auto params = golden::trainable(model);
  for (const NamedParam& p : params) p.tensor.mutable_grad().reset();
  Batch batch = collate(answers_to_prompts({3, 2, 1})).to(golden::device());
  if (shared) batch.shared = shared_prefixes(batch);
  EXPECT_EQ(shared, batch.shared != nullptr);
  set_training(batch.step, {});
  Pass out{.hidden_TD = Forward{}.hidden(model, batch), .gradients = {}};
  const int64_t n = out.hidden_TD.numel();
  const at::Tensor factor = at::arange(n, out.hidden_TD.options()).sin().view(out.hidden_TD.sizes());
  (out.hidden_TD * factor).sum().backward();
  for (const NamedParam& p : params)
    if (p.tensor.grad().defined()) out.gradients[p.name] = p.tensor.grad().clone();
  return out;
}

// Windows, softcaps and latent attention are among them.
TEST(SharedPrefix, GivesTheHiddenStatesAndGradientsOfThePlainWay) {
  for (const char* family : {"qwen2", "qwen3", "llama3", "gemma2", "deepseek_v2", "qwen3_moe_norm", "gpt_oss"}) {
    const auto model = golden::owned_model(Case(family).dir / "checkpoint");
    const Pass plain = pass_of(*model, false), shared = pass_of(*model, true);
    // gemma2's softcaps are computed with libtorch's products, which may round by their size.
    if (golden::device_named() == "cpu" && std::string(family) != "gemma2") {
      EXPECT_TRUE(at::equal(plain.hidden_TD, shared.hidden_TD)) << family;
    }
    EXPECT_LT(golden::max_abs(plain.hidden_TD, shared.hidden_TD), 2e-5) << family;
    ASSERT_EQ(plain.gradients.size(), shared.gradients.size());
    EXPECT_GT(plain.gradients.size(), 5u);
    for (const auto& [name, gradient] : plain.gradients)
      EXPECT_LT((gradient - shared.gradients.at(name)).norm().item<double>(),
                1e-5 * std::max(1.0, gradient.norm().item<double>()))
          << family << " " << name;
  }
}

TEST(SharedPrefix, ChangesNoLossOfPairs) {
  const Samples pairs = answers_to_prompts({2, 2, 2});
  const auto policy = golden::owned_model(Case("qwen3").dir / "checkpoint");
  make_adapter(*policy, {.r = 4, .alpha = 8, .dropout = 0, .target_modules = {"q_proj", "v_proj"}, .init = "false"}, 5);
  const auto expect_same = [&](Algorithm&& plain, Algorithm&& shared, Model& model) {
    const Actors actors{.policy = model, .reference = Reference::without_adapters(model)};
    const test::Step1 a = test::step_of(plain, actors, {pairs}), b = test::step_of(shared, actors, {pairs});
    EXPECT_GT(a.norm, 0);
    EXPECT_LT(test::distance(a, b), 1e-5);
  };
  expect_same(Dpo({.rpo_alpha = 1}), Dpo({.rpo_alpha = 1, .share_prefix = true}), *policy);
  expect_same(Orpo({}), Orpo({.share_prefix = true}), *policy);
  expect_same(Cpo({}), Cpo({.share_prefix = true}), *policy);
  expect_same(Simpo({}), Simpo({.share_prefix = true}), *policy);
  const auto scored = test::scalar_model(Case("train_qwen2").dir / "checkpoint");
  expect_same(RewardModel({}), RewardModel({.share_prefix = true}), *scored);
}

// Layers that run again in the backward pass see the tree as well.
TEST(SharedPrefix, IsRecomputed) {
  const auto model = golden::owned_model(Case("qwen3").dir / "checkpoint");
  const auto gradient = [&](const Forward& forward) {
    const auto params = golden::trainable(*model);
    for (const NamedParam& p : params) p.tensor.mutable_grad().reset();
    Batch batch = collate(answers_to_prompts({3, 2})).to(golden::device());
    batch.shared = shared_prefixes(batch);
    set_training(batch.step, {});
    forward.hidden(*model, batch).square().sum().backward();
    return params[1].tensor.grad().clone();
  };
  EXPECT_LT(golden::max_abs(gradient({}), gradient({.recomputed_layers = 8})), 1e-6);
  EXPECT_LT(golden::max_abs(gradient({}), gradient({.selective = Forward::Selective{}})), 1e-6);
}

TEST(SharedPrefix, IsOfModelsInWhichItComesToTheSame) {
  const auto can = [](const char* family) {
    return can_share_prefixes(describe_model(read_model_config(Case(family).dir / "checkpoint")));
  };
  for (const char* family : {"qwen2", "qwen3", "llama3", "gemma2", "deepseek_v2", "gpt_oss"})
    EXPECT_TRUE(can(family)) << family;
  for (const char* family : {"qwen3_next", "qwen2_5_vl"}) EXPECT_FALSE(can(family)) << family;
}

TEST(SharedPrefix, IsRefusedWhereAStateIsKept) {
  const auto model = golden::owned_model(Case("qwen3_next").dir / "checkpoint");
  Batch batch = collate(answers_to_prompts({2})).to(golden::device());
  batch.shared = shared_prefixes(batch);
  EXPECT_NE(test::refusal(Fault::Usage, [&] { Forward{}.hidden(*model, batch); }).find("--share_prefix"),
            std::string::npos);
  batch.media.emplace_back();
  EXPECT_NE(test::refusal(Fault::Usage, [&] { shared_prefixes(batch); }).find("images"), std::string::npos);
}

}  // namespace
}  // namespace apus
