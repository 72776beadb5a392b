// SPDX-License-Identifier: Apache-2.0
#include "environment/environment_calls.h"

#include <algorithm>

namespace apus {

EnvironmentCalls::EnvironmentCalls(Environment& environment, size_t episodes, Told told)
    : environment_(environment),
      told_(std::move(told)),
      resets_{.waits = {}, .at_once = environment.resets_at_once()},
      steps_{.waits = {}, .at_once = environment.steps_at_once()} {
  const size_t threads = std::min(episodes, std::max(resets_.at_once, steps_.at_once));
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

EnvironmentCalls::~EnvironmentCalls() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void EnvironmentCalls::reset(const std::vector<EpisodeStart>& starts) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < starts.size(); ++i) resets_.waits.emplace_back(i, starts[i]);
  changed_.notify_all();
}

void EnvironmentCalls::step(size_t place, EpisodeTurn turn) {
  const std::lock_guard lock(mutex_);
  steps_.waits.emplace_back(place, std::move(turn));
  changed_.notify_one();
}

void EnvironmentCalls::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || resets_.ready() || steps_.ready(); });
    if (over_) return;
    if (resets_.ready())
      serve(resets_, lock, [this](const auto& starts) { return environment_.reset(starts); });
    else
      serve(steps_, lock, [this](const auto& turns) { return environment_.step(turns); });
  }
}

template <class What, class Call>
void EnvironmentCalls::serve(Line<What>& line, std::unique_lock<std::mutex>& lock, const Call& call) {
  std::vector<size_t> places;
  std::vector<What> asked;
  const size_t count = line.at_once == 1 ? line.waits.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    places.push_back(line.waits.front().first), asked.push_back(std::move(line.waits.front().second));
    line.waits.pop_front();
  }
  ++line.under_way;
  lock.unlock();
  try {
    std::vector<EpisodeReply> replies = call(asked);
    for (size_t i = 0; i < places.size(); ++i) told_.reply(places[i], std::move(replies.at(i)));
  } catch (...) {
    told_.fault(std::current_exception());
  }
  lock.lock();
  --line.under_way;
  changed_.notify_all();  // another one may be due
}

}  // namespace apus
