// SPDX-License-Identifier: Apache-2.0
// Answers to questions with images: what the engine says of the tokens that it drew, and what the trainer says of them.
#include "algos/replay.h"
#include "nn/training_step.h"
#include "tests/folder.h"
#include "tests/models/seeing_batch.h"
#include "tests/refusal.h"
#include "tests/train/training.h"
#include "train/actors.h"
#include "train/label_logprobs.h"
#include "train/rollout.h"

namespace apus {
namespace {

constexpr double kHeat = 0.7;  // temperature

Sampling drawn() {
  Sampling s;
  s.temperature = kHeat, s.max_new_tokens = 6, s.ignore_eos = true, s.seed = 3;
  s.top_logprobs = 0, s.tempered_logprobs = true;
  return s;
}

class SeeingAnswers : public ::testing::TestWithParam<std::string> {
 protected:
  SeeingAnswers() : c(GetParam()), model(golden::owned_model(c.dir / "checkpoint")) {
    const golden::Packed p = golden::unpad(c, "left");
    for (const auto& row : p.ids) prompts.emplace_back(row.begin(), row.end());
    media = golden::media_of(c, p, "left", dynamic_cast<SeeingDecoder&>(*model).seeing());
  }
  // Two answers to each question, as a group.
  std::vector<Answer> answers() {
    Rollout rollout(*model, at::TensorOptions().dtype(at::kFloat).device(golden::device()), {.max_sequences = 3});
    std::vector<std::vector<int32_t>> asked;
    std::vector<std::vector<MediaItem>> shown;
    for (size_t i = 0; i < 2 * prompts.size(); ++i) asked.push_back(prompts[i / 2]), shown.push_back(media[i / 2]);
    const auto finished = rollout.answers(asked, drawn(), shown);
    std::vector<Answer> out;
    for (size_t i = 0; i < finished.size(); ++i) {
      EXPECT_EQ(finished[i].error, "");
      Answer& answer = out.emplace_back();
      answer.prompt = asked[i], answer.ids = finished[i].ids(), answer.media = shown[i];
      for (const TokenOut& token : finished[i].tokens) answer.engine_logprobs.push_back(token.logprob);
    }
    return out;
  }
  // Of the answers' tokens, as the trainer's forward pass gives them.
  at::Tensor trained_logprobs(const std::vector<Answer>& answers) {
    Samples samples;
    for (size_t i = 0; i < answers.size(); ++i) samples.push_back(sample_of(answers[i], true, i % 2 == 1));
    Batch batch = collate(samples).to(golden::device());
    golden::trainable(*model);
    set_training(batch.step, {});
    const at::Tensor hidden_TD = Forward{}.hidden(*model, batch);
    const at::Tensor logprob_T =
        label_logprobs(*model, model->head_factors(hidden_TD, batch.step), batch.label_T, batch.step, kHeat);
    return logprob_T.detach().masked_select(batch.label_T.ge(0)).cpu();
  }
  golden::Case c;
  std::unique_ptr<Model> model;
  std::vector<std::vector<int32_t>> prompts;
  Inputs::Media media;
};

TEST_P(SeeingAnswers, AreSeenAlikeByEngineAndTrainer) {
  std::vector<Answer> all = answers();
  std::vector<float> engine;
  for (const Answer& answer : all)
    engine.insert(engine.end(), answer.engine_logprobs.begin(), answer.engine_logprobs.end());
  ASSERT_EQ(engine.size(), 12 * prompts.size());
  const at::Tensor engine_N = at::tensor(engine, at::kFloat), trainer_N = trained_logprobs(all);
  EXPECT_LT(golden::max_abs(trainer_N, engine_N), golden::device_named() == "cpu" ? 2e-5 : 2e-4);
  // Of other images it would say something else.
  for (Answer& answer : all)
    for (MediaItem& item : answer.media) {
      auto other = std::make_shared<MediaContent>(*item.content);
      for (float& value : other->values) value = 1 - value;
      other->digest += " inverted";
      item.content = other, item.digest = other->digest;
    }
  EXPECT_GT(golden::max_abs(trained_logprobs(all), engine_N), 1e-4);
}

TEST_P(SeeingAnswers, AreNotDumped) {
  Answer answer{.prompt = prompts[0], .ids = {1, 2}, .media = media[0]};
  const test::Folder folder;
  test::expect_says(test::refusal(Fault::Usage, [&] { append_rollouts(folder.path / "answers.jsonl", {answer}, "1"); }),
                    "--dump_rollouts keeps answers to questions of text alone");
}

INSTANTIATE_TEST_SUITE_P(Seeing, SeeingAnswers, ::testing::Values("qwen2_5_vl", "qwen3_vl", "internvl3_hf"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
