// SPDX-License-Identifier: Apache-2.0
// An environment asked about each episode by itself: threads call it, as many at once as it takes, and tell of each
// reply when it is there.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "environment/environment.h"

namespace apus {

class EnvironmentCalls {
 public:
  // Told on the threads; `place` is that of the episode among those of the round.
  struct Told {
    std::function<void(size_t place, EpisodeReply reply)> reply;
    std::function<void(std::exception_ptr)> fault;
  };
  EnvironmentCalls(Environment& environment, size_t episodes, Told told);
  ~EnvironmentCalls();  // begins no further call, and waits for those under way
  EnvironmentCalls(const EnvironmentCalls&) = delete;

  void reset(const std::vector<EpisodeStart>& starts);  // by their places
  void step(size_t place, EpisodeTurn turn);

 private:
  template <class What>
  struct Line {  // what waits for a call, and how many calls are under way
    std::deque<std::pair<size_t, What>> waits;
    size_t under_way = 0;
    const size_t at_once;
    bool ready() const { return !waits.empty() && under_way < at_once; }
  };
  void work();
  template <class What, class Call>
  void serve(Line<What>& line, std::unique_lock<std::mutex>& lock, const Call& call);

  Environment& environment_;
  const Told told_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  Line<EpisodeStart> resets_;
  Line<EpisodeTurn> steps_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace apus
