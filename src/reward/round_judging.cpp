// SPDX-License-Identifier: Apache-2.0
#include "reward/round_judging.h"

namespace apus {

RoundJudging::RoundJudging(Rewards& rewards, size_t count)
    : rewards_(rewards),
      scores_(rewards.functions().size()),
      failures_(rewards.functions().size()),
      answers_(count),
      there_(count, 0) {
  for (size_t f = 0; f < scores_.size(); ++f) threads_.emplace_back([this, f] { judge(f); });
}

RoundJudging::~RoundJudging() {
  {
    const std::lock_guard lock(mutex_);
    over_ = given_up_ = true;
  }
  join();
  for (const auto& function : rewards_.functions()) function->forget();
}

void RoundJudging::join() {
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void RoundJudging::add(size_t place, RewardInput answer) {
  const std::lock_guard lock(mutex_);
  if (there_.at(place)) return;
  answers_[place] = std::move(answer), there_[place] = 1;
  const size_t before = ready_;
  while (ready_ < there_.size() && there_[ready_]) ++ready_;
  if (ready_ > before) more_.notify_all();
}

std::vector<RewardInput> RoundJudging::next(size_t heard) {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return ready_ > heard || over_; });
  if (over_) return {};
  return {answers_.begin() + static_cast<long>(heard), answers_.begin() + static_cast<long>(ready_)};
}

void RoundJudging::judge(size_t f) {
  Reward& function = *rewards_.functions()[f];
  std::vector<double>& scores = scores_[f];
  const auto score = [&](const std::vector<RewardInput>& some) {
    const std::vector<double> said = function.score(some);
    scores.insert(scores.end(), said.begin(), said.end());
  };
  const bool alone = function.judges_alone();
  try {
    size_t heard = 0;
    for (std::vector<RewardInput> some; !(some = next(heard)).empty(); heard += some.size())
      alone ? score(some) : function.hear(some);
    if (given_up_) return;
    alone ? score({answers_.begin() + static_cast<long>(heard), answers_.end()}) : score(answers_);
  } catch (...) {
    failures_[f] = std::current_exception();
  }
}

Rewards::Scores RoundJudging::finish(const std::vector<RewardInput>& all) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < all.size(); ++i)
      if (!there_[i]) answers_[i] = all[i];
    over_ = true;
  }
  join();
  for (const std::exception_ptr& failure : failures_)
    if (failure) std::rethrow_exception(failure);
  return rewards_.summed(std::move(scores_), answers_.size());
}

}  // namespace apus
