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
  stop(true);
  for (const auto& function : rewards_.functions()) function->forget();
}

void RoundJudging::stop(bool given_up) {
  {
    const std::lock_guard lock(mutex_);
    over_ = true, given_up_ = given_up;
  }
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

void RoundJudging::judge(size_t f) {
  Reward& function = *rewards_.functions()[f];
  try {
    for (size_t heard = 0;;) {
      std::vector<RewardInput> some;
      {
        std::unique_lock lock(mutex_);
        more_.wait(lock, [&] { return ready_ > heard || over_; });
        if (given_up_) return;
        if (ready_ == heard) break;
        some.assign(answers_.begin() + static_cast<long>(heard), answers_.begin() + static_cast<long>(ready_));
      }
      heard += some.size();
      if (!function.judges_alone())
        function.hear(some);
      else
        for (const double one : function.score(some)) scores_[f].push_back(one);
    }
    if (!function.judges_alone()) scores_[f] = function.score(answers_);
  } catch (...) {
    failures_[f] = std::current_exception();
  }
}

Rewards::Scores RoundJudging::finish(const std::vector<RewardInput>& all) {
  for (size_t i = 0; i < all.size(); ++i) add(i, all[i]);
  stop(false);
  for (const std::exception_ptr& failure : failures_)
    if (failure) std::rethrow_exception(failure);
  return rewards_.summed(std::move(scores_), answers_.size());
}

}  // namespace apus
