// SPDX-License-Identifier: Apache-2.0
// Models with a state in the engine: a prompt's bits do not depend on how it is cut into steps, on neighbours or on
// preemption, states leave with their sequences, and nothing is taken from a prefix cache.
#include <gtest/gtest.h>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

class StateEngine : public ::testing::TestWithParam<const char*> {
 protected:
  StateEngine()
      : model(load_model(
            golden::models() / GetParam() / "checkpoint",
            {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }})) {}
  // The log-probabilities of a prompt of 40 tokens and of 8 more that follow it.
  std::vector<float> asked(const EngineSpec& spec, size_t neighbours) const {
    Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(golden::device()), spec);
    std::vector<EngineRequest> requests;
    for (size_t i = 0; i <= neighbours; ++i) {
      EngineRequest request{.sampling = {.temperature = 0, .max_new_tokens = 8, .ignore_eos = true}};
      request.sampling.prompt_logprobs = 0;
      for (int32_t t = 0; t < 40 - static_cast<int32_t>(3 * i); ++t)
        request.prompt.push_back((t * t * 7 + 3 * t + 5 * static_cast<int32_t>(i)) % 100);
      requests.push_back(std::move(request));
    }
    const auto got = generate(engine, std::move(requests));
    for (const auto& each : got) EXPECT_EQ(each.error, "");
    std::vector<float> numbers;
    for (const TokenOut& token : got[0].prompt) numbers.push_back(token.logprob);
    for (const TokenOut& token : got[0].tokens) numbers.push_back(token.logprob);
    EXPECT_EQ(numbers.size(), 48u);
    return numbers;
  }
  std::unique_ptr<Model> model;
};

TEST_P(StateEngine, ThePromptsCutsDoNotShow) {
  const auto whole = asked({.block_size = 4, .cache_bytes = 1 << 20}, 0);
  // Attention to chosen keys is libtorch's products, whose bits depend on how many there are.
  const bool chosen = model->shape().pooled;
  const double tolerance = !golden::device().is_cpu() ? 4e-3 : chosen ? 1e-5 : 0;
  for (const int64_t step_tokens : {1, 3, 17})
    for (const size_t neighbours : {size_t{0}, size_t{2}}) {
      const auto cut = asked(
          {.block_size = 4, .max_step_tokens = step_tokens, .max_sequences = 3, .cache_bytes = 1 << 20}, neighbours);
      for (size_t i = 0; i < whole.size(); ++i)
        EXPECT_NEAR(cut[i], whole[i], tolerance) << "token " << i << ", steps of " << step_tokens;
    }
}

TEST_P(StateEngine, NothingIsReused) {
  Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(golden::device()),
                {.block_size = 2, .max_sequences = 2, .cache_bytes = 1 << 20});
  const std::vector<std::vector<int32_t>> prompts(5, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto answers = generate(engine, prompts, {.temperature = 0, .max_new_tokens = 6, .ignore_eos = true});
  for (const auto& each : answers) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.ids(), answers[0].ids());
  }
  engine.sleep();
  EXPECT_EQ(engine.stats().cached_tokens, 0);
}

// States and all around them are in f32 beside weights of two bytes.
TEST_P(StateEngine, WeightsMayBeHalf) {
  const auto half =
      load_model(golden::models() / GetParam() / "checkpoint",
                 {.dtype = at::kBFloat16, .device = golden::device(), .own = [](const std::string&) { return true; }});
  Engine engine(*half, at::TensorOptions().dtype(at::kBFloat16).device(golden::device()),
                {.block_size = 4, .max_sequences = 2, .cache_bytes = 1 << 20});
  const auto answers =
      generate(engine, {{1, 2, 3, 4, 5, 6, 7}, {9, 8, 7}}, {.temperature = 0, .max_new_tokens = 5, .ignore_eos = true});
  for (const auto& each : answers) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.ids().size(), 5u);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StateEngine,
                         ::testing::Values("qwen3_next", "qwen3_5_moe_text", "minimax", "ling2_5", "bamba", "falcon_h1",
                                           "deepseek_v4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace apus
