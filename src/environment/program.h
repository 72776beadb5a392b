// SPDX-License-Identifier: Apache-2.0
// A program of any language as an environment: `--environment "external:python3 maze.py"`. It is started once and reads
// lines of JSON, {"op": "reset", "id", "row", "seed"}, {"op": "step", "id", "turn", "completion", "completion_ids"} and
// {"op": "close", "id"}; it prints a line for each of the first two: {"id", "observation", "reward", "done"}.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "environment/environment.h"

namespace apus {

class Program;

class ProgramEnvironment final : public Environment {
 public:
  ProgramEnvironment(std::string command, const EnvironmentOptions& options);
  ~ProgramEnvironment() override;
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  size_t resets_at_once() const override { return kAtOnce; }
  size_t steps_at_once() const override { return kAtOnce; }
  void close() override;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kAtOnce = 256;  // lines without a reply
  // A line that the program was given.
  struct Asked {
    Clock::time_point until;
    std::optional<EpisodeReply> reply = {};
  };
  std::vector<EpisodeReply> asked(const std::vector<std::pair<int64_t, Json>>& lines);
  EpisodeReply failed() const;  // as the program has; throws where that stops the run
  void start();
  void stop();
  void listen();  // on a thread of its own, as long as the program lives
  // With the lock:
  int64_t waiting() const;      // for a reply
  double seconds_left() const;  // for the first of them
  void take_replies();
  void require_alive(bool ended, bool flooded);
  const std::string command_;
  const double timeout_;  // seconds
  const bool skips_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<int64_t, Asked> asked_;  // by their episodes
  std::string to_say_;
  std::exception_ptr fault_;          // what the program did wrong: all that is asked in this round fails
  std::vector<int64_t> open_;         // episodes of the round
  bool over_ = false;                 // the thread ends
  std::unique_ptr<Program> program_;  // none before the first question, and after a failure
  std::thread listens_;
};

}  // namespace apus
