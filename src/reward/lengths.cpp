// SPDX-License-Identifier: Apache-2.0
// Rewards of an answer's length: in itself, near the end of what is allowed, and of repeated pieces.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "reward/reward.h"

namespace apus {
namespace {

// 0 until soft_cache_length tokens before the end, then falling by 1 over that stretch, and on behind it.
class SoftOverlong final : public SingleReward {
 public:
  explicit SoftOverlong(const RewardOptions& o)
      : longest_(static_cast<double>(o.soft_max_length.value_or(o.max_completion_length))),
        cache_(static_cast<double>(o.soft_cache_length.value_or(1))) {}
  double one(const RewardInput& answer) const override {
    return std::min(0.0, -(static_cast<double>(answer.tokens.size()) - (longest_ - cache_)) / cache_);
  }

 private:
  const double longest_, cache_;
};

// The share of the allowed length: what --reward_weights makes of it decides whether long answers are good.
class LengthShare final : public SingleReward {
 public:
  explicit LengthShare(const RewardOptions& o) : longest_(static_cast<double>(o.max_completion_length)) {}
  double one(const RewardInput& answer) const override { return static_cast<double>(answer.tokens.size()) / longest_; }

 private:
  const double longest_;
};

std::vector<std::string> lower_words(const std::string& text) {
  std::vector<std::string> words;
  bool open = false;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c))) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

// The share of n-grams of words that stand there a second time, times the largest penalty.
class Repetition final : public SingleReward {
 public:
  explicit Repetition(const RewardOptions& o)
      : n_(static_cast<size_t>(o.repetition_n_grams)), penalty_(o.repetition_max_penalty) {}
  double one(const RewardInput& answer) const override {
    const std::vector<std::string> words = lower_words(answer.completion);
    if (words.size() < n_) return 0;
    std::set<std::vector<std::string>> seen;
    const size_t total = words.size() - n_ + 1;
    for (size_t i = 0; i < total; ++i)
      seen.emplace(words.begin() + static_cast<long>(i), words.begin() + static_cast<long>(i + n_));
    return (1 - static_cast<double>(seen.size()) / static_cast<double>(total)) * penalty_;
  }

 private:
  const size_t n_;
  const double penalty_;
};

const RegisterReward<SoftOverlong> soft_overlong_reward("soft_overlong");
const RegisterReward<LengthShare> length_reward("length");
const RegisterReward<Repetition> repetition_reward("repetition");

}  // namespace
}  // namespace apus
