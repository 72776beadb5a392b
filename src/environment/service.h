// SPDX-License-Identifier: Apache-2.0
// An HTTP service as an environment, in a form like Gym's: `--environment http://host:8000`. An episode is
// POST /reset {"session_id", "row", "seed"}, then POST /step {"session_id", "action": {"message", "ids"}} for each
// turn, and POST /close; the first two reply {"observation", "reward", "done"}.
#pragma once

#include <mutex>

#include "environment/environment.h"

namespace apus {

class ServiceEnvironment final : public Environment {
 public:
  ServiceEnvironment(std::string address, const EnvironmentOptions& options);
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  size_t resets_at_once() const override { return kAtOnce; }
  size_t steps_at_once() const override { return kAtOnce; }
  void close() override;

 private:
  static constexpr size_t kAtOnce = 16;  // requests
  EpisodeReply asked(const std::string& path, const Json& body) const;
  EpisodeReply reply_to(const std::string& path, const Json& body) const;
  std::string session(int64_t episode) const;
  const std::string address_;
  const double timeout_;  // seconds
  const bool skips_;
  const std::string run_;  // what tells its sessions from those of others
  int64_t round_ = 0;
  std::mutex mutex_;  // of what is open
  std::vector<int64_t> open_;
};

}  // namespace apus
