// SPDX-License-Identifier: Apache-2.0
// Schedulers of turns and environments that plugins of ms-swift register (reward/plugins.h), as an environment.
#pragma once

#include "environment/environment.h"
#include "reward/plugins.h"

namespace apus {

class PluginEnvironment final : public Environment {
 public:
  PluginEnvironment(std::shared_ptr<Plugins> plugins, const EnvironmentOptions& options);
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  void close() override;

 private:
  std::vector<EpisodeReply> asked(const char* op, Json episodes);
  const std::shared_ptr<Plugins> plugins_;
  const double timeout_;  // seconds
  const bool skips_;
};

// The process of --external_plugins; null where none are given.
std::shared_ptr<Plugins> plugins_of(const PluginOptions& options, Json settings,
                                    std::shared_ptr<const Tokenizer> tokenizer);

// Imports the plugins, and says which of the names that are asked for nobody registers (Fault::Usage).
void check_plugins(const PluginOptions& options, const std::vector<std::string>& rewards,
                   const EnvironmentOptions* environment);

}  // namespace apus
