// SPDX-License-Identifier: Apache-2.0
// What the engine says of the tokens that it drew, and what the trainer says of them: on a processor in f32 the same
// bits, for every family, with and without an adapter.
#include <ATen/ops/equal.h>

#include "algos/replay.h"
#include "checkpoint/adapter.h"
#include "nn/training_step.h"
#include "tests/train/training.h"
#include "train/actors.h"
#include "train/label_logprobs.h"
#include "train/rollout.h"

namespace apus {
namespace {

struct Agreement {
  double worst = 0;
  int64_t tokens = 0;
};

enum class Adapter { None, Lora, Dora };

Agreement agreement_of(const std::string& family, Adapter adapter, at::ScalarType type) {
  const auto model = golden::owned_model(golden::Case(family).dir / "checkpoint", type);
  LoraConfig config{
      .r = 4, .alpha = 8, .dropout = 0, .target_modules = {"q_proj", "v_proj", "o_proj"}, .init = "false"};
  config.dora = adapter == Adapter::Dora;
  if (adapter != Adapter::None) make_adapter(*model, config, 5);
  constexpr double kTemperature = 0.7;
  Sampling s;
  s.temperature = kTemperature, s.max_new_tokens = 24, s.ignore_eos = true, s.seed = 3;
  s.top_logprobs = 0, s.tempered_logprobs = true;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 7; ++i) {
    auto& prompt = prompts.emplace_back();
    for (int32_t k = 0; k < 3 + 5 * i; ++k) prompt.push_back(10 + (i * 7 + k * 5) % 40);
  }
  Rollout rollout(*model, at::TensorOptions().dtype(type).device(golden::device()),
                  {.max_sequences = 5, .max_model_len = 128});
  const auto answers = rollout.answers(prompts, s);
  Samples samples;
  std::vector<float> engine;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Answer answer{.prompt = prompts[i], .ids = answers[i].ids()};
    for (const TokenOut& token : answers[i].tokens) engine.push_back(token.logprob);
    samples.push_back(sample_of(answer, true, false));
  }
  Batch batch = collate(samples).to(golden::device());
  golden::trainable(*model);
  set_training(batch.step, {});
  const at::Tensor hidden_TD = Forward{}.hidden(*model, batch);
  const at::Tensor trained_T =
      label_logprobs(*model, model->head_factors(hidden_TD, batch.step), batch.label_T, batch.step, kTemperature);
  EXPECT_TRUE(trained_T.requires_grad());
  const at::Tensor old_T = Reference::of(*model).logprobs(batch, kTemperature), which_T = batch.label_T.ge(0);
  const at::Tensor engine_N = at::tensor(engine, at::kFloat);
  Agreement out{.tokens = engine_N.numel()};
  for (const at::Tensor& of_T : {trained_T.detach(), old_T})
    out.worst = std::max(out.worst, golden::max_abs(of_T.masked_select(which_T), engine_N));
  return out;
}

TEST(Agreement, OfEngineAndTrainerIsExactInF32) {
  if (golden::device_named() != "cpu") GTEST_SKIP() << "a processor's kernels do not let a row's bits depend on others";
  for (const char* family : {"qwen2", "qwen3", "llama3", "qwen3_moe_norm"})
    for (const Adapter adapter : {Adapter::None, Adapter::Lora, Adapter::Dora}) {
      const Agreement a = agreement_of(family, adapter, at::kFloat);
      EXPECT_EQ(a.tokens, 7 * 24) << family;
      EXPECT_EQ(a.worst, 0) << family
                            << (adapter == Adapter::None   ? ""
                                : adapter == Adapter::Lora ? " with LoRA"
                                                           : " with DoRA");
    }
}

}  // namespace
}  // namespace apus
