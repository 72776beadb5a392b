// SPDX-License-Identifier: Apache-2.0
// The experts that an engine's tokens met are told, and met again by the trainer (--router_replay_mode R3); so are
// those that the policy chose before the updates of a round (R2).
#include <ATen/ops/equal.h>
#include <ATen/ops/randint_like.h>
#include <ATen/ops/randn.h>

#include "algos/ppo.h"
#include "engine/engine.h"
#include "nn/expert_choices.h"
#include "tests/algos/critic.h"
#include "tests/algos/learning.h"
#include "tests/algos/preference_steps.h"

namespace apus {
namespace {

std::unique_ptr<Model> mixture(const std::string& family) {
  return golden::owned_model(golden::Case(family).dir / "checkpoint");
}

at::TensorOptions options() { return at::TensorOptions().dtype(at::kFloat).device(golden::device()); }

Batch batch_of(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
  Sample sample{.ids = prompt, .trained = std::vector<uint8_t>(prompt.size(), 0)};
  sample.ids.insert(sample.ids.end(), answer.begin(), answer.end());
  sample.trained.resize(sample.ids.size(), 1);
  return collate({sample}).to(golden::device());
}

class RouterReplay : public ::testing::TestWithParam<std::string> {};

// Prompts that share a beginning, which the cache then has, one in chunks, and answers.
TEST_P(RouterReplay, AnEngineTellsWhatItsTokensMet) {
  const auto model = mixture(GetParam());
  const int64_t width = model->experts_met();
  ASSERT_GT(width, 0);
  std::vector<std::vector<int32_t>> prompts(3);
  for (int32_t i = 0; i < 40; ++i) prompts[0].push_back(3 + (i * 7) % 50);
  prompts[1] = prompts[0], prompts[1].push_back(9);
  prompts[2] = {5, 4, 6};
  Engine engine(*model, options(), {.max_step_tokens = 16, .max_sequences = 8, .max_model_len = 64});
  Sampling sampling;
  sampling.temperature = 1, sampling.max_new_tokens = 6, sampling.ignore_eos = true;
  auto requests = requests_of(prompts, sampling);
  generate(engine, {{.prompt = prompts[0], .sampling = sampling}});  // the cache knows what nobody has asked about
  for (EngineRequest& request : requests) request.tells_experts = true;
  for (int round = 0; round < 2; ++round) {
    engine.sleep(), engine.wake();  // and forgets it
    const auto answers = generate(engine, requests);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Batch batch = batch_of(prompts[i], answers[i].ids());
      Step step = batch.step;
      step.met_experts = std::make_shared<ExpertChoices>(width);
      const at::NoGradGuard no_grad;
      model->forward(batch.inputs(), step);
      const at::Tensor met_TW = step.met_experts->written_TW();
      const int64_t read = met_TW.size(0) - 1;  // the last token is not
      ASSERT_EQ(std::ssize(answers[i].experts), read * width) << i;
      const auto* const met = met_TW.data_ptr<int16_t>();
      EXPECT_EQ(answers[i].experts, std::vector<int16_t>(met, met + read * width)) << "prompt " << i;
    }
  }
}

TEST_P(RouterReplay, ItsOwnChoiceChangesNothingAndAnotherOneReachesTheRouter) {
  const auto model = mixture(GetParam());
  const Batch batch = batch_of({5, 4, 6, 9, 11, 3, 17, 30}, {12, 13});
  const auto logprobs = [&](const at::Tensor& expert_TW, std::shared_ptr<ExpertChoices> met = nullptr) {
    Batch asked = batch;
    asked.step.met_experts = met;
    if (expert_TW.defined()) asked.step.told_experts = std::make_shared<ExpertChoices>(expert_TW);
    return Reference::of(*model).logprobs(asked);
  };
  const auto met = std::make_shared<ExpertChoices>(model->experts_met());
  const at::Tensor plain_T = logprobs({}, met), own_TW = met->written_TW();
  EXPECT_LT(golden::max_abs(logprobs(own_TW), plain_T), 1e-5);
  EXPECT_TRUE(at::equal(logprobs(own_TW * 0 - 1), plain_T) || golden::max_abs(logprobs(own_TW * 0 - 1), plain_T) < 1e-5)
      << "unknown: its own choice";

  // Every token meets other experts: each one's number moves by one.
  const int64_t experts = model->shape().experts;
  const at::Tensor other_TW = (own_TW + 1).remainder(experts).to(at::kShort);
  EXPECT_GT(golden::max_abs(logprobs(other_TW), plain_T), 1e-4);
  Step step = batch.step;
  step.told_experts = std::make_shared<ExpertChoices>(other_TW);
  const std::vector<NamedParam> params = golden::trainable(*model);
  model->forward(batch.inputs(), step).square().sum().backward();
  EXPECT_EQ(step.told_experts->compared().all.item<int64_t>(),
            10 * model->experts_met() / model->shape().experts_per_token);
  EXPECT_GT(step.told_experts->compared().others.item<int64_t>(), 0);
  double gradient = 0;
  for (const NamedParam& p : params)
    if (const std::string& n = p.name;
        (n.find("gate.weight") != std::string::npos || n.find("router") != std::string::npos) &&
        p.tensor.grad().defined())
      gradient += p.tensor.grad().abs().sum().item<double>();
  EXPECT_GT(gradient, 0) << "the router weighs what it did not choose";
}

INSTANTIATE_TEST_SUITE_P(Mixtures, RouterReplay,
                         ::testing::Values("mixtral", "qwen3_moe_norm", "qwen2_moe", "olmoe", "phimoe", "deepseek_v3",
                                           "glm4_moe", "gpt_oss", "granitemoe", "qwen3_next", "llama4_text"),
                         [](const auto& one) { return one.param; });

struct OfRound {
  double mismatch = 0, changed = 0;
  bool told = false;
};

// Routers that choose otherwise for a few tokens, as another device's numbers or an update make them.
void nudge_routers(Model& model) {
  at::manual_seed(3);
  for (const NamedParam& p : golden::trainable(model))
    if (p.name.find("gate.weight") != std::string::npos) {
      const at::NoGradGuard no_grad;
      p.tensor.add_(at::randn(p.tensor.sizes(), p.tensor.options()) * 0.05 * p.tensor.abs().mean());
    }
}

double value_in(const Loss& loss, const char* name) {
  const Ratio& r = loss.metrics.at(name);
  return r.sum.item<double>() / r.count.item<double>();
}

RunSetting setting_of(const LoopOptions& loop) {
  Sampling sampling;
  sampling.temperature = 1, sampling.max_new_tokens = 24, sampling.seed = 5;
  return {.loop = loop,
          .tokenizer = Tokenizer::load(test::source_dir() / "assets/tokenizer"),
          .sampling = sampling,
          .output_dir = {},
          .device = golden::device()};
}

GrpoOptions grpo_options(const std::string& mode, const std::string& share) {
  GrpoOptions o;
  o.reward_funcs = {"length"}, o.num_generations = 8, o.max_completion_length = 24, o.beta = 0;
  o.router_replay_mode = mode, o.share_prefix = share == "shared";
  return o;
}

Loss loss_of(Algorithm& algorithm, Actors& actors, Batch& batch) {
  set_training(batch.step, {});
  Loss loss = algorithm.loss(actors, batch, Forward{.recomputed_layers = 1});
  loss.sum.backward();
  return loss;
}

// A round of a policy whose answers come of an engine with other routers.
OfRound round_of(const std::string& mode, const std::string& share) {
  const auto policy = mixture("qwen3_moe_norm"), engine = mixture("qwen3_moe_norm");
  nudge_routers(*engine);
  Rollout rollout(*engine, options(), {.max_sequences = 64, .max_model_len = 128});
  Grpo grpo(grpo_options(mode, share));
  const LoopOptions loop{.per_device_train_batch_size = 16, .gradient_accumulation_steps = 1};
  grpo.begin(setting_of(loop));
  Actors actors{.policy = *policy, .rollout = &rollout};
  std::vector<Update> updates = grpo.collect(actors, {*learning::Tasks(5, 2, false).next()});
  Batch& batch = updates.at(0).at(0);
  EXPECT_EQ(batch.shared != nullptr, share == "shared");
  const Loss loss = loss_of(grpo, actors, batch);
  OfRound out{.mismatch = value_in(loss, "rollout_mismatch/mean"),
              .told = loss.metrics.count("router_replay/changed") > 0};
  if (out.told) out.changed = value_in(loss, "router_replay/changed");
  return out;
}

TEST(RouterReplay, BringsTheMismatchDown) {
  const OfRound plain = round_of("disabled", "alone");
  EXPECT_FALSE(plain.told);
  for (const char* share : {"alone", "shared"}) {
    const OfRound told = round_of("R3", share);
    EXPECT_GT(told.changed, 0) << "routers that would have chosen others";
    EXPECT_LT(told.changed, 0.5);
    EXPECT_LT(told.mismatch, 0.7 * plain.mismatch) << share;
    RecordProperty("told", std::to_string(told.mismatch)), RecordProperty("plain", std::to_string(plain.mismatch));
  }
}

double farthest_ratio(const Grpo& grpo, const Model& policy, const Batch& batch) {
  return grpo.tokens_of(batch, Reference::of(policy).logprobs(batch)).log_ratio().abs().max().item<double>();
}

// R2: updates of a round meet what the policy chose before the first of them, whatever its routers have become.
TEST(RouterReplay, ThePolicysChoiceHoldsThroughARound) {
  for (const char* share : {"alone", "shared"}) {
    const auto policy = mixture("qwen3_moe_norm"), before = mixture("qwen3_moe_norm");
    Rollout rollout(*policy, options(), {.max_sequences = 64, .max_model_len = 128});
    GrpoOptions o = grpo_options("R2", share);
    o.num_iterations = 2;
    Grpo grpo(o);
    const LoopOptions loop{.per_device_train_batch_size = 8, .gradient_accumulation_steps = 2};
    grpo.begin(setting_of(loop));
    Actors actors{.policy = *policy, .rollout = &rollout};
    std::vector<Update> updates = grpo.collect(actors, {*learning::Tasks(5, 2, false).next()});
    ASSERT_EQ(updates.size(), 2u);
    for (const Batch& batch : updates[0]) {
      Step step = batch.step;
      step.met_experts = std::make_shared<ExpertChoices>(before->experts_met());
      const at::NoGradGuard no_grad;
      before->forward(batch.inputs(), step);
      EXPECT_TRUE(at::equal(batch.expert_TW.cpu(), step.met_experts->written_TW())) << share;
      EXPECT_LE(farthest_ratio(grpo, *policy, with_experts(batch)), golden::device_named() == "cpu" ? 0 : 1e-5)
          << share;
    }
    EXPECT_EQ(value_in(loss_of(grpo, actors, updates[0][0]), "router_replay/changed"), 0) << share;

    nudge_routers(*policy);
    Batch& later = updates[1][0];
    EXPECT_TRUE(at::equal(later.expert_TW, updates[0][0].expert_TW));
    EXPECT_GT(value_in(loss_of(grpo, actors, later), "router_replay/changed"), 0) << share;
    Batch alone = later;
    alone.step.told_experts = nullptr;
    EXPECT_LT(farthest_ratio(grpo, *policy, later), 0.8 * farthest_ratio(grpo, *policy, alone))
        << share << ": what is behind another expert differs";
  }
}

// Two passes over a round of PPO, whose engine has other routers; they change between the two.
struct OfPpo {
  double mismatch = 0, ratio = 0, changed = -1, changed_later = -1;
};
OfPpo ppo_round(const std::string& mode) {
  const auto policy = mixture("qwen3_moe_norm"), engine = mixture("qwen3_moe_norm");
  const auto critic = test::scalar_model(golden::Case("qwen3_moe_norm").dir / "checkpoint");
  nudge_routers(*engine);
  Rollout rollout(*engine, options(), {.max_sequences = 64, .max_model_len = 128});
  PpoOptions o;
  o.reward_funcs = {"length"}, o.kl_coef = 0, o.num_ppo_epochs = 2, o.router_replay_mode = mode;
  o.local_rollout_forward_batch_size = 3;
  Ppo ppo(o);
  const LoopOptions loop{.per_device_train_batch_size = 8, .gradient_accumulation_steps = 1};
  ppo.begin(setting_of(loop));
  Actors actors{.policy = *policy, .rollout = &rollout, .others = {{"critic", {critic.get()}}}};
  std::vector<Update> updates = ppo.collect(actors, {*learning::Tasks(5, 8, false).next()});
  const auto changed = [](const Loss& loss) {
    return loss.metrics.count("router_replay/changed") ? value_in(loss, "router_replay/changed") : -1;
  };
  Batch first = updates.at(0).at(0).to(golden::device()), second = updates.at(1).at(0).to(golden::device());
  OfPpo out;
  const Loss loss = loss_of(ppo, actors, first);
  out.mismatch = value_in(loss, "rollout_mismatch/mean"), out.ratio = value_in(loss, "val/ratio");
  out.changed = changed(loss);
  nudge_routers(*policy);
  out.changed_later = changed(loss_of(ppo, actors, second));
  return out;
}

TEST(RouterReplay, OfPpo) {
  const OfPpo plain = ppo_round("disabled"), engine = ppo_round("R3"), own = ppo_round("R2");
  EXPECT_EQ(plain.changed, -1);
  EXPECT_GT(engine.changed, 0);
  EXPECT_LT(engine.mismatch, 0.7 * plain.mismatch);
  EXPECT_EQ(own.mismatch, plain.mismatch) << "the engine's choice is not asked for";
  EXPECT_EQ(own.changed, 0);
  EXPECT_GT(own.changed_later, 0);
  for (const OfPpo& one : {plain, engine, own}) EXPECT_NEAR(one.ratio, 1, golden::device_named() == "cpu" ? 0 : 1e-5);
}

TEST(RouterReplay, IsRefusedWhereNothingDiffers) {
  const LoopOptions loop{.per_device_train_batch_size = 8, .gradient_accumulation_steps = 1};
  GrpoOptions grpo = grpo_options("R2", "alone");
  EXPECT_THROW(grpo.check(loop, 1), Error) << "one update of a round";
  grpo.num_iterations = 2;
  grpo.check(loop, 1);
  PpoOptions ppo;
  ppo.router_replay_mode = "R2", ppo.num_ppo_epochs = 1;
  EXPECT_THROW(ppo.check(loop, 1), Error);
  ppo.num_mini_batches = 2;
  ppo.check(loop, 1);
  for (const char* mode : {"R2", "R3"}) {
    ppo.router_replay_mode = mode, ppo.replay_rollouts = "file";
    EXPECT_THROW(ppo.check(), Error) << mode;
  }
}

TEST(RouterReplay, IsOfMixtures) {
  const auto dense = golden::owned_model(golden::Case("train_qwen2").dir / "checkpoint");
  EXPECT_EQ(dense->experts_met(), 0);
  Engine engine(*dense, options(), {.max_sequences = 8, .max_model_len = 64});
  EXPECT_THROW(engine.submit({.prompt = {3}, .tells_experts = true}), Error);
}

}  // namespace
}  // namespace apus
