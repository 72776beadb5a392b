// SPDX-License-Identifier: Apache-2.0
// Is the answer right? accuracy: 1 or 0; cosine: the same, and how long it took.
#include <algorithm>
#include <cmath>

#include "reward/math_answer.h"
#include "reward/reward.h"

namespace apus {
namespace {

class Accuracy final : public SingleReward {
 public:
  explicit Accuracy(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    return same_math_answer(answer.completion, solution_of(answer, "accuracy")) ? 1 : 0;
  }
};

// From one value at length 0 to another at full length, along half a cosine.
class CosineAccuracy final : public SingleReward {
 public:
  explicit CosineAccuracy(const RewardOptions& o)
      : o_(o), longest_(static_cast<double>(o.cosine_max_len.value_or(o.max_completion_length))) {}
  double one(const RewardInput& answer) const override {
    const bool right = same_math_answer(answer.completion, solution_of(answer, "cosine"));
    const double at_start = right ? o_.cosine_min_len_value_correct : o_.cosine_min_len_value_wrong,
                 at_end = right ? o_.cosine_max_len_value_correct : o_.cosine_max_len_value_wrong;
    const double share = std::min(1.0, static_cast<double>(answer.tokens.size()) / longest_);
    return at_start + (at_end - at_start) * (1 - std::cos(M_PI * share)) / 2;
  }

 private:
  const RewardOptions o_;
  const double longest_;
};

const RegisterReward<Accuracy> accuracy_reward("accuracy");
const RegisterReward<CosineAccuracy> cosine_reward("cosine");

}  // namespace
}  // namespace apus
