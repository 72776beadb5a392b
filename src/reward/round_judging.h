// SPDX-License-Identifier: Apache-2.0
// The answers of a round are judged as they come, while others of it are still drawn. No tensor library.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "reward/reward.h"

namespace apus {

class RoundJudging {
 public:
  // Of so many answers. One round at a time; `rewards` is nobody else's meanwhile.
  RoundJudging(Rewards& rewards, size_t count);
  ~RoundJudging();  // what is not finished is given up
  RoundJudging(const RoundJudging&) = delete;

  // The answer of this place is there. Rewards hear answers in the order of their places. Thread-safe.
  void add(size_t place, RewardInput answer);
  // All answers, also those that were not added; what Rewards::score() would say of them. Throws what judging threw.
  Rewards::Scores finish(const std::vector<RewardInput>& all);

 private:
  // Answers behind the first `heard` that are there in their order, waited for; none: the round is over.
  std::vector<RewardInput> next(size_t heard);
  void judge(size_t function);
  void join();

  Rewards& rewards_;
  std::vector<std::vector<double>> scores_;  // of each function
  std::vector<std::exception_ptr> failures_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<RewardInput> answers_;
  std::vector<uint8_t> there_;
  size_t ready_ = 0;  // answers before this place are all there
  bool over_ = false, given_up_ = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace apus
