// SPDX-License-Identifier: Apache-2.0
// An HTTP service as an environment, in a form like Gym's: `--environment http://host:8000`. An episode is
// POST /reset {"session_id", "row", "seed"}, then POST /step {"session_id", "action": {"message", "ids"}} for each
// turn, and POST /close; the first two reply {"observation", "reward", "done"}.
#pragma once

#include "environment/environment.h"

namespace apus {

class ServiceEnvironment final : public Environment {
 public:
  ServiceEnvironment(std::string address, const EnvironmentOptions& options);
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  void close() override;

 private:
  std::vector<EpisodeReply> asked(const std::string& path, const std::vector<Json>& bodies) const;
  EpisodeReply reply_to(const std::string& path, const Json& body) const;
  std::string session(int64_t episode) const;
  const std::string address_;
  const double timeout_;  // seconds
  const bool skips_;
  const std::string run_;  // what tells its sessions from those of others
  int64_t round_ = 0;
  std::vector<int64_t> open_;
};

}  // namespace apus
