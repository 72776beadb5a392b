// SPDX-License-Identifier: Apache-2.0
// A program of any language as an environment: `--environment "external:python3 maze.py"`. It is started once and reads
// lines of JSON, {"op": "reset", "id", "row", "seed"}, {"op": "step", "id", "turn", "completion", "completion_ids"} and
// {"op": "close", "id"}; it prints a line for each of the first two: {"id", "observation", "reward", "done"}.
#pragma once

#include <optional>

#include "environment/environment.h"

namespace apus {

class Program;

class ProgramEnvironment final : public Environment {
 public:
  ProgramEnvironment(std::string command, const EnvironmentOptions& options);
  ~ProgramEnvironment() override;
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  void close() override;

 private:
  std::vector<EpisodeReply> asked(const std::vector<std::pair<int64_t, Json>>& lines);
  std::vector<EpisodeReply> replies_to(const std::vector<std::pair<int64_t, Json>>& lines);
  const std::string command_;
  const double timeout_;  // seconds
  const bool skips_;
  std::unique_ptr<Program> program_;  // none before the first question, and after a failure
  std::vector<int64_t> open_;         // episodes of the round
};

}  // namespace apus
