// SPDX-License-Identifier: Apache-2.0
// Rotary factors of two sets, one for texts up to some length: answers that grow beyond it are those of a model that
// reads the whole text at once, and a policy that answers is trained on the very numbers that it answered by.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

constexpr int64_t kBorder = 8;  // original_max_position_embeddings of the checkpoint
constexpr int64_t kNew = 10;

struct LongRope : ::testing::Test {
  const at::Device device = golden::device();
  const std::unique_ptr<Model> model =
      load_model(golden::models() / "phi3_longrope/checkpoint", {.dtype = at::kFloat, .device = device});
  const std::vector<std::vector<int32_t>> prompts = {
      {5, 9, 3}, {5, 9, 3, 7, 11, 2, 8}, {4, 6, 12, 15, 20, 31, 7, 9, 9}};

  // Log-probs of all tokens behind each place of a text that is read at once: [T, V].
  at::Tensor read_at_once(const std::vector<int32_t>& text) const {
    const c10::AutoGradMode no_grad(false);
    Step step = packed_step({static_cast<int>(text.size())}, device);
    const at::Tensor hidden = model->forward(golden::ids_tensor({text.begin(), text.end()}, device), step);
    return model->head(hidden, step).to(at::kCPU, at::kFloat).log_softmax(-1);
  }
  // of_whole: a token is compared with the reading of the whole text, else of the text before it.
  void expect_agreement(EngineSpec spec, bool of_whole) const {
    Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(device), spec);
    Sampling greedy{.temperature = 0, .max_new_tokens = kNew, .ignore_eos = true, .top_logprobs = 0};
    for (int turn = 0; turn < 2; ++turn) {  // the second time from blocks that are known
      const auto got = generate(engine, prompts, greedy);
      for (size_t p = 0; p < prompts.size(); ++p) {
        SCOPED_TRACE(str("prompt ", p, ", turn ", turn));
        ASSERT_EQ(got[p].error, "");
        std::vector<int32_t> text = prompts[p], whole = prompts[p];
        for (const TokenOut& t : got[p].tokens) whole.push_back(t.id);
        for (const TokenOut& t : got[p].tokens) {
          const at::Tensor all = read_at_once(of_whole ? whole : text)[std::ssize(text) - 1];
          if (!of_whole) EXPECT_EQ(all.argmax().item<int64_t>(), t.id) << "behind " << text.size();
          EXPECT_NEAR(all[t.id].item<float>(), t.logprob, 2e-5) << "behind " << text.size();
          text.push_back(t.id);
        }
      }
    }
  }
};

TEST_F(LongRope, AnAnswerThatOutgrowsTheShortContextIsReadAnew) {
  ASSERT_EQ(model->short_context(), kBorder);
  expect_agreement({.block_size = 4, .cache_bytes = 1 << 20}, false);
  expect_agreement({.block_size = 4, .cache_bytes = 1 << 20, .draft = {.tokens = 4, .longest = 2}}, false);
  expect_agreement({.block_size = 4, .max_step_tokens = 3, .max_sequences = 2, .cache_bytes = 1 << 20}, false);
}

TEST_F(LongRope, ReadAsLongTextsAllTokensAgreeWithTheWholeText) {
  model->read_all_as(64);
  EXPECT_EQ(model->short_context(), 0);
  expect_agreement({.block_size = 4, .cache_bytes = 1 << 20}, true);
}

}  // namespace
}  // namespace apus
