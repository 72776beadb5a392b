// SPDX-License-Identifier: Apache-2.0
// What an answer is worth: functions of its text, its tokens and the row it was asked by. They register themselves
// under a name; a program of any language can be one too (reward/external.h). No tensor library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/registry.h"
#include "reward/reward_options.h"

namespace apus {

struct RewardInput {
  std::string completion;       // the answer's text
  std::vector<int32_t> tokens;  // ... and its ids
  bool cut = false;             // ended by the length it may have
  const Json* row = nullptr;    // all columns of its row: "solution", "messages", ...
  // Of an answer in several turns all that was said, by the model and to it; the completion is its last turn.
  const Json* trajectory = nullptr;
  int64_t group = 0, step = 0;  // the question's number in its round, and updates made before
};

class Plugins;

class Reward {
 public:
  virtual ~Reward() = default;
  // One number for each answer; nan where it has no opinion.
  virtual std::vector<double> score(const std::vector<RewardInput>& answers) = 0;
  // What it says of an answer depends on no other one: it may be asked of parts of a round.
  virtual bool judges_alone() const { return false; }
  // Answers of a round whose others are still drawn, in their order; score() of the whole round follows, or forget().
  virtual void hear(const std::vector<RewardInput>& /*answers*/) {}
  virtual void forget() {}
};

// Of functions that look at one answer at a time: several threads work on them.
class SingleReward : public Reward {
 public:
  std::vector<double> score(const std::vector<RewardInput>& answers) override;
  bool judges_alone() const override { return true; }
  virtual double one(const RewardInput& answer) const = 0;  // thread-safe
};

// Calls work(i) for all i below count, on several threads; the first exception is the caller's.
void in_parallel(size_t count, size_t threads, const std::function<void(size_t)>& work);

// The row's column "solution" (or "answer", "ground_truth"), as text. Without one `reward` cannot judge: Fault::Data.
std::string solution_of(const RewardInput& answer, const char* reward);

using MakeReward = std::function<std::unique_ptr<Reward>(const RewardOptions&)>;
template <class R>
struct RegisterReward {
  explicit RegisterReward(const char* name) {
    Registry<MakeReward>::of().add(
        name, [](const RewardOptions& o) -> std::unique_ptr<Reward> { return std::make_unique<R>(o); });
  }
};

// Those that --reward_funcs names, with their weights.
class Rewards {
 public:
  // `plugins`: of --external_plugins; what they register comes before what has the same name here.
  explicit Rewards(const RewardOptions& options, const std::shared_ptr<Plugins>& plugins = nullptr);
  ~Rewards();
  struct Scores {
    std::vector<std::vector<double>> functions;  // of each function, of each answer
    std::vector<double> totals;                  // weighed sums; what is nan counts nothing
  };
  Scores score(const std::vector<RewardInput>& answers);
  Scores summed(std::vector<std::vector<double>> functions, size_t answers) const;
  const std::vector<std::unique_ptr<Reward>>& functions() const { return rewards_; }
  // As logs show them: a program by its file. No two are the same.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<double>& weights() const { return weights_; }  // of functions, then of --reward_model

 private:
  std::vector<std::string> names_;
  std::vector<double> weights_;
  std::vector<std::unique_ptr<Reward>> rewards_;
};

}  // namespace apus
