// SPDX-License-Identifier: Apache-2.0
// A task that a tiny model learns in seconds: digits and a mark are answered with the digits in reverse. It is
// pre-trained until it sometimes knows the answer; then rewards take it from there.
#pragma once

#include "algos/grpo.h"
#include "base/random.h"
#include "tests/train/training.h"
#include "train/rollout.h"

namespace apus::learning {

constexpr int32_t kBegin = 1, kMark = 2, kEnd = 3, kZero = 10;
constexpr size_t kDigits = 2;

struct Task {
  std::vector<int32_t> prompt, answer;
};

inline Task task(uint64_t seed, uint64_t number) {
  Random random(seed, stream_named("digits"), number * 16);
  Task t{.prompt = {kBegin}, .answer = {}};
  for (size_t i = 0; i < kDigits; ++i) t.prompt.push_back(kZero + static_cast<int32_t>(random.below(10)));
  t.answer.assign(t.prompt.rbegin(), t.prompt.rend() - 1);
  t.prompt.push_back(kMark), t.answer.push_back(kEnd);
  return t;
}

// Tasks without end, `batch` a micro-batch; with answers to learn, or as questions.
class Tasks final : public SampleSource {
 public:
  Tasks(uint64_t seed, size_t batch, bool answered) : seed_(seed), batch_(batch), answered_(answered) {}
  void start(int64_t) override {}
  std::optional<Samples> next() override {
    Samples out;
    for (size_t i = 0; i < batch_; ++i) {
      const Task t = task(seed_, number_++);
      Sample sample;
      sample.ids = t.prompt;
      sample.trained.assign(t.prompt.size(), 0);
      if (answered_) {
        sample.ids.insert(sample.ids.end(), t.answer.begin(), t.answer.end());
        sample.trained.resize(sample.ids.size(), 1);
      }
      sample.row = Json{{"target", t.answer}}.dump();
      out.push_back(std::move(sample));
    }
    return out;
  }
  int64_t size() const override { return 1 << 20; }
  Json position() const override { return number_; }
  void restore(const Json& position) override { number_ = position.get<uint64_t>(); }

 private:
  const uint64_t seed_;
  const size_t batch_;
  const bool answered_;
  uint64_t number_ = 0;
};

// The share of the tokens that are right: what is nearly right shows the way.
inline double rightness(const RewardInput& answer) {
  const auto target = answer.row->at("target").get<std::vector<int32_t>>();
  double right = 0;
  for (size_t i = 0; i < std::min(target.size(), answer.tokens.size()); ++i) right += target[i] == answer.tokens[i];
  return right / static_cast<double>(std::max(target.size(), answer.tokens.size()));
}

class Reversed final : public SingleReward {
 public:
  explicit Reversed(const RewardOptions&) {}
  double one(const RewardInput& answer) const override { return rightness(answer); }
};

// The same, given to other answers of the group.
class Shuffled final : public Reward {
 public:
  explicit Shuffled(const RewardOptions&) {}
  std::vector<double> score(const std::vector<RewardInput>& answers) override {
    std::vector<double> out;
    for (const RewardInput& answer : answers) out.push_back(rightness(answer));
    Random random(7, stream_named("shuffled rewards"), (calls_++) << 20);
    for (size_t i = 0; i < out.size(); i += 8)
      random.shuffle(std::span(out).subspan(i, std::min<size_t>(8, out.size() - i)));
    return out;
  }

 private:
  uint64_t calls_ = 0;
};

class Flipped final : public SingleReward {
 public:
  explicit Flipped(const RewardOptions&) {}
  double one(const RewardInput& answer) const override { return -rightness(answer); }
};

struct Student {
  Student() : model(golden::owned_model(golden::Case("train_qwen2").dir / "checkpoint")) {}

  Sampling sampling() const {
    Sampling s;
    s.temperature = 1, s.max_new_tokens = kDigits + 2, s.stop_ids = {kEnd}, s.seed = 5;
    return s;
  }
  at::TensorOptions options() const { return at::TensorOptions().dtype(at::kFloat).device(golden::device()); }

  // Share of 200 new tasks that it samples the right answer to.
  double exact() {
    Rollout rollout(*model, options(), {.max_sequences = 256, .max_model_len = 64});
    std::vector<std::vector<int32_t>> prompts;
    for (uint64_t i = 0; i < 200; ++i) prompts.push_back(task(99, i).prompt);
    const auto answers = rollout.answers(prompts, sampling());
    double right = 0;
    for (uint64_t i = 0; i < 200; ++i) right += answers[i].ids() == task(99, i).answer;
    return right / 200;
  }

  RunSetting setting(const LoopOptions& loop) const {
    return {.loop = loop,
            .tokenizer = Tokenizer::load(test::source_dir() / "assets/tokenizer"),
            .sampling = sampling(),
            .output_dir = {},
            .device = golden::device()};
  }

  void train(Algorithm& algorithm, SampleSource& source, Rollout* rollout, LoopOptions loop, double lr) {
    test::Folder folder;
    loop.save_strategy = "no", loop.logging_steps = 1;
    auto params = golden::trainable(*model);
    for (const auto& [role, models] : others)
      if (role == "critic")
        for (const NamedParam& p : golden::trainable(*models[0])) params.push_back({"critic." + p.name, p.tensor});
    const auto optimizer = make_optimizer({}, make_groups(params, {.lr = lr, .weight_decay = 0}));
    const auto comm = lone_comm();
    RunLog log({.dir = folder.path, .events_dir = {}, .quiet = true});
    Trainer trainer({.algorithm = algorithm,
                     .actors = {.policy = *model, .rollout = rollout, .others = others},
                     .optimizer = *optimizer,
                     .schedule = [](int64_t) { return [](int64_t) { return 1.0; }; },
                     .base_lr = lr,
                     .train = source,
                     .data_ranks = *comm,
                     .log = &log,
                     .device = golden::device()},
                    {.loop = loop, .output_dir = folder.path});
    history = trainer.run().log_history;
  }

  // By showing it answers, until it knows some.
  void pretrain(double until) {
    Tasks tasks(11, 32, true);
    for (int round = 0; round < 60 && exact() < until; ++round) {
      Sft sft({});
      train(sft, tasks, nullptr, {.max_steps = 20, .gradient_accumulation_steps = 1}, 3e-3);
    }
  }

  void reinforce(GrpoOptions o, int64_t steps, double lr = 5e-4) {
    Tasks tasks(23, 1, false);
    Rollout rollout(*model, options(), {.max_sequences = 256, .max_model_len = 64});
    LoopOptions loop{.max_steps = steps, .per_device_train_batch_size = 128, .gradient_accumulation_steps = 1};
    o.max_completion_length = kDigits + 2, o.beta = 0, o.entropy_coef = 0.02;
    Grpo grpo(o);
    grpo.begin(setting(loop));
    train(grpo, tasks, &rollout, loop, lr);
  }

  std::unique_ptr<Model> model;
  std::map<std::string, std::vector<Model*>> others;  // a critic is trained too
  Json history;
};

}  // namespace apus::learning
