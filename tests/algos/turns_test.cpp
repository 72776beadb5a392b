// SPDX-License-Identifier: Apache-2.0
// Answers in several turns are learnt from: the policy's tokens alone, as the engine saw them.
#include <ATen/ops/equal.h>

#include <chrono>
#include <thread>

#include "algos/gkd.h"
#include "algos/ppo.h"
#include "algos/replay.h"
#include "environment/episodes.h"
#include "tests/algos/critic.h"
#include "tests/algos/learning.h"
#include "tests/algos/preference_steps.h"

namespace apus {
namespace {

using learning::Student;

constexpr int32_t kSays = 30;  // an observation: this, a digit, and the mark

// Wants two turns of whatever kind, and gives each a reward.
class TwoTurns final : public Episode {
 public:
  TwoTurns(const Json&, uint64_t seed) : digit_(learning::kZero + static_cast<int32_t>(seed % 10)) {}
  static Json tools() { return nullptr; }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const double own = static_cast<double>(turn.tokens.size());
    if (turn.turn == 1) return {.reward = own, .done = true};
    return {.tokens = {kSays, digit_, learning::kMark}, .reward = 0.25};
  }

 private:
  const int32_t digit_;
};
const RegisterEnvironment<TwoTurns> two_turns("test two turns");

// The same, which takes its time for some answers and none for others.
class TwoTurnsSlowly final : public Episode {
 public:
  TwoTurnsSlowly(const Json& row, uint64_t seed) : turns_(row, seed), sleeps_(made++ % 3) {}
  static Json tools() { return nullptr; }
  EpisodeReply step(const EpisodeTurn& turn) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(30 * sleeps_));
    return turns_.step(turn);
  }
  static inline std::atomic<int> made = 0;

 private:
  TwoTurns turns_;
  const int sleeps_;
};
const RegisterEnvironment<TwoTurnsSlowly> two_turns_slowly("test two turns slowly");

// The second of two episodes begins another conversation behind its first turn, and the first goes on in its own.
class Branches final : public Episode {
 public:
  Branches(const Json&, uint64_t) : branches_(made++ % 2 == 1) {}
  static Json tools() { return nullptr; }
  EpisodeReply step(const EpisodeTurn& turn) override {
    if (turn.turn == 1) return {.reward = branches_ ? 1.0 : 0.0, .done = true};
    const std::vector<int32_t> asks = {learning::kBegin, learning::kZero, learning::kZero + 1, learning::kMark};
    return branches_ ? EpisodeReply{.tokens = asks, .conversation = 1} : EpisodeReply{.tokens = {kSays}};
  }
  static inline std::atomic<int> made = 0;

 private:
  const bool branches_;
};
const RegisterEnvironment<Branches> branches("test branches");

// Of a student that has learnt to end its turns, mostly: one that is cut is the last one.
Student taught() {
  Student student;
  student.pretrain(0.1);
  return student;
}

struct Turns {
  template <class Algorithm>
  std::vector<Update> updates(Algorithm& algorithm, std::map<std::string, std::vector<Model*>> others = {}) {
    const LoopOptions loop{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 1};
    algorithm.begin(student.setting(loop));
    return algorithm.collect(actors(std::move(others)), {*learning::Tasks(5, 2, false).next()});
  }
  Actors& actors(std::map<std::string, std::vector<Model*>> others) {
    return held.emplace_back(Actors{.policy = *student.model, .rollout = &rollout, .others = std::move(others)});
  }
  Student student = taught();
  Rollout rollout{*student.model, student.options(), {.max_sequences = 64, .max_model_len = 64}};
  std::deque<Actors> held;
};

GrpoOptions of_turns() {
  GrpoOptions o;
  o.environment = "test two turns", o.num_generations = 2, o.max_completion_length = 8, o.beta = 0;
  return o;
}

// Observations in the batch, whose tokens are no labels, while those before and behind them are.
int64_t observations(const Batch& batch) {
  const at::Tensor ids = batch.id_T.to(at::kCPU), labels = batch.label_T.to(at::kCPU);
  int64_t observed = 0;
  for (int64_t t = 0; t + 1 < ids.numel(); ++t)
    if (ids[t + 1].item<int64_t>() == kSays && ids[t + 3].item<int64_t>() == learning::kMark) {
      ++observed;
      for (int64_t k = 0; k < 3; ++k) EXPECT_LT(labels[t + k].item<int64_t>(), 0) << "an observation is no label";
      EXPECT_GE(labels[t - 1].item<int64_t>(), 0) << "the turn before is";
      EXPECT_GE(labels[t + 3].item<int64_t>(), 0) << "and the turn behind it";
    }
  return observed;
}

TEST(Turns, ADistilledModelIsComparedInItsOwnTokens) {
  Turns run;
  GkdOptions o;
  o.environment = "test two turns", o.teacher_model = "teacher", o.lmbda = 1, o.max_completion_length = 8;
  Gkd gkd(o);
  const LoopOptions loop{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 1};
  gkd.begin(run.student.setting(loop));
  const auto teacher = golden::owned_model(golden::Case("train_qwen2").dir / "checkpoint");
  std::vector<Update> updates =
      gkd.collect(run.actors({{"teacher", {teacher.get()}}}), {*learning::Tasks(5, 4, true).next()});
  Batch batch = updates.at(0).at(0).to(golden::device());
  EXPECT_GE(observations(batch), 2);
  set_training(batch.step, {});
  const Loss loss = gkd.loss(run.held.back(), batch, Forward{});
  EXPECT_EQ(loss.metrics.at("divergence").count.item<double>(), static_cast<double>(batch.trained));
  EXPECT_GT(loss.sum.item<double>(), 0) << "the student has learnt something since";
}

TEST(Turns, ObservationsAreReadAndNotLearnt) {
  Turns run;
  GrpoOptions o = of_turns();
  o.num_generations = 2;
  Grpo grpo(o);
  const std::vector<Update> updates = run.updates(grpo);
  ASSERT_EQ(updates.size(), 1u);
  int64_t observed = 0, sequences = 0;
  for (Batch batch : updates[0]) {
    sequences += static_cast<int64_t>(batch.step.length_q.size());
    observed += observations(batch);
    set_training(batch.step, {});
    const Loss loss = grpo.loss(run.held.back(), batch, Forward{});
    EXPECT_LT(loss.metrics.at("rollout_mismatch/max").sum.item<double>(), 1e-4) << "the very tokens that were said";
    if (loss.metrics.count("num_turns")) {
      const auto& turns = loss.metrics.at("num_turns");
      EXPECT_NEAR(turns.sum.item<double>() / turns.count.item<double>(), 1 + static_cast<double>(observed) / 4, 1e-6);
      EXPECT_GT(loss.metrics.at("rewards/test two turns/mean").sum.item<double>(), 0);
    }
  }
  EXPECT_EQ(sequences, 4);
  EXPECT_GE(observed, 2);
}

// Answers of an engine that is asked for each turn as soon as it is due.
TEST(Turns, AreTheSameHoweverLongTheEnvironmentTakes) {
  std::vector<at::Tensor> ids, engine;
  for (const char* environment : {"test two turns", "test two turns slowly"}) {
    Turns run;
    GrpoOptions o = of_turns();
    o.environment = environment;
    Grpo grpo(o);
    const std::vector<Update> updates = run.updates(grpo);
    ids.push_back(updates.at(0).at(0).id_T.to(at::kCPU));
    engine.push_back(updates[0][0].token_columns.at("engine_logprob").to(at::kCPU).nan_to_num());
  }
  ASSERT_EQ(ids[0].sizes(), ids[1].sizes());
  EXPECT_TRUE(at::equal(ids[0], ids[1]));
  EXPECT_LE((engine[0] - engine[1]).abs().max().item<double>(), golden::device_named() == "cpu" ? 0 : 1e-4);
}

// A round's micro-batches of at most two sequences, with the conversations of all answers.
std::vector<Batch> branched(Turns& run, Grpo& grpo) {
  Branches::made = 0;
  const LoopOptions loop{.per_device_train_batch_size = 2, .gradient_accumulation_steps = 2};
  grpo.begin(run.student.setting(loop));
  auto updates = grpo.collect(run.actors({}), {*learning::Tasks(5, 2, false).next()});
  EXPECT_EQ(updates.size(), 1u);
  return updates.at(0);
}

TEST(Turns, EachConversationIsLearntAndTheAnswerCountsOnce) {
  for (const std::string loss_type : {"grpo", "dr_grpo", "dapo"}) {
    Turns run;
    GrpoOptions o = of_turns();
    o.environment = "test branches", o.loss_type = loss_type;
    Grpo grpo(o);
    double counted = 0, sequences = 0, tokens = 0, good = 0, weight = 0;
    for (Batch& batch : branched(run, grpo)) {
      counted += grpo.count(batch), sequences += static_cast<double>(batch.step.length_q.size());
      EXPECT_LE(batch.step.length_q.size(), 2u);
      tokens += static_cast<double>(batch.trained);
      const at::Tensor advantage_S = batch.sequence_columns.at("advantage").to(at::kCPU);
      good += static_cast<double>(advantage_S.gt(0).sum().item<int64_t>());
      set_training(batch.step, {});
      const Loss loss = grpo.loss(run.held.back(), batch, Forward{});
      EXPECT_LT(loss.metrics.at("rollout_mismatch/max").sum.item<double>(), 1e-4) << "the very tokens that were said";
      weight += loss.sum.item<double>();
    }
    // Turns that were cut are the last ones: of an answer that should branch, too.
    EXPECT_GT(sequences, 4) << "four answers, of which two branch";
    EXPECT_NEAR(counted, loss_type == "grpo" ? 4 : loss_type == "dr_grpo" ? 4 * 8 : tokens, 1e-4);
    EXPECT_EQ(good, sequences - 2) << "each conversation has the advantage of its answer";
    if (loss_type == "grpo") {
      EXPECT_NEAR(weight, 0, 1e-4) << "advantages of a group are 0 in sum, however it branched";
    }
  }
}

TEST(Turns, EachConversationEndsWithTheReward) {
  Turns run;
  PpoOptions o;
  o.environment = "test branches", o.max_completion_length = 8, o.kl_coef = 0, o.lam = 1;
  Ppo ppo(o);
  Branches::made = 0;
  const auto critic = test::scalar_model(golden::Case("train_qwen2").dir / "checkpoint");
  int64_t sequences = 0, ones = 0;
  const std::vector<Update> updates = run.updates(ppo, {{"critic", {critic.get()}}});
  for (const Batch& batch : updates.at(0)) {
    const at::Tensor label_T = batch.label_T.to(at::kCPU), return_T = batch.token_columns.at("return").to(at::kCPU);
    int64_t at = 0;
    for (const int32_t length : batch.step.length_q) {
      ++sequences;
      for (int64_t t = at + length - 1; t >= at; --t)
        if (label_T[t].item<int64_t>() >= 0) {
          ones += std::abs(return_T[t].item<double>() - 1) < 1e-5;
          break;
        }
      at += length;
    }
  }
  EXPECT_EQ(sequences, ones == 2 ? 3 : 2 + ones);
  EXPECT_GT(ones, 0);
}

TEST(Turns, GiveRewardsToTheirEnds) {
  Turns run;
  PpoOptions o;
  o.environment = "test two turns", o.max_completion_length = 8, o.kl_coef = 0, o.lam = 1;
  Ppo ppo(o);
  const auto critic = test::scalar_model(golden::Case("train_qwen2").dir / "checkpoint");
  const std::vector<Update> updates = run.updates(ppo, {{"critic", {critic.get()}}});
  const Batch batch = updates.at(0).at(0);
  const at::Tensor label_T = batch.label_T.to(at::kCPU), return_T = batch.token_columns.at("return").to(at::kCPU);
  // With lambda 1 and gamma 1 a token's return is all that comes: the later turn's, and before its end the first's too.
  int64_t at = 0, of_two_turns = 0;
  for (const int32_t length : batch.step.length_q) {
    std::vector<double> returns;
    std::vector<int64_t> gaps;
    for (int64_t t = at; t < at + length; ++t)
      if (label_T[t].item<int64_t>() >= 0) {
        returns.push_back(return_T[t].item<double>());
        gaps.push_back(t);
      }
    at += length;
    size_t first = 1;  // tokens of the first turn
    while (first < gaps.size() && gaps[first] == gaps[first - 1] + 1) ++first;
    if (first == gaps.size()) continue;  // a first turn that was cut is the last one
    ++of_two_turns;
    const double second = static_cast<double>(returns.size() - first);
    for (size_t k = 0; k < returns.size(); ++k) EXPECT_NEAR(returns[k], second + (k < first ? 0.25 : 0), 1e-4) << k;
  }
  EXPECT_GT(of_two_turns, 0);
}

TEST(Turns, AreWrittenAndReadWithTheirMask) {
  test::Folder folder;
  Answer answer;
  answer.prompt = {1, 2}, answer.ids = {5, 6, 7, 8}, answer.own = {1, 1, 0, 1};
  answer.engine_logprobs = {-1, -2, 0, -3}, answer.reward = 1;
  append_rollouts(folder.path / "rollouts.jsonl", {answer, answer}, "0");
  const auto read = read_rollouts(folder.path / "rollouts.jsonl", 2);
  EXPECT_EQ(read.at(0).own, answer.own);
  EXPECT_EQ(read.at(0).said(), 3);
  const Sample sample = sample_of(read[0], true, false);
  EXPECT_EQ(sample.trained, (std::vector<uint8_t>{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(answer_column(read[0], {1, 2, 3}), (std::vector<float>{0, 1, 2, 0, 3, 0}));

  answer.beside.push_back({.prompt = {1}, .ids = {9}, .own = {1}, .logprobs = {-4}});
  append_rollouts(folder.path / "branched.jsonl", {answer, answer}, "0");
  const auto again = read_rollouts(folder.path / "branched.jsonl", 2);
  ASSERT_EQ(again.size(), 2u) << "two answers, of two conversations each";
  EXPECT_EQ(again[1].beside.at(0).ids, (std::vector<int32_t>{9}));
  EXPECT_EQ(again[1].beside[0].logprobs, (std::vector<float>{-4}));
  const Conversations all = conversations_of(again);
  EXPECT_EQ(all.answer, (std::vector<size_t>{0, 0, 1, 1}));
  EXPECT_EQ(all.share, (std::vector<float>{0.75, 0.25, 0.75, 0.25}));
  EXPECT_EQ(all.each.at(1).engine_logprobs, (std::vector<float>{-4}));
}

}  // namespace
}  // namespace apus
