// SPDX-License-Identifier: Apache-2.0
// Plugins that were written for ms-swift, run by Python in one process that is asked by lines of JSON
// (assets/plugins/runner.py). No Python is part of this program. Thread-safe: one question at a time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "reward/reward.h"
#include "text/tokenizer.h"

namespace apus {

class Program;

class Plugins {
 public:
  // `settings` are what plugins see as `args`. The tokenizer may be null: then they cannot ask for it.
  Plugins(const PluginOptions& options, Json settings, std::shared_ptr<const Tokenizer> tokenizer);
  ~Plugins();

  // What they register: "rewards", "environments", "schedulers", "datasets", "reward_models", "prms": of each
  // the names.
  const Json& names();
  bool has(const char* kind, const std::string& name);
  // The reply to a line with an "op". Fault::Data names the file and line of what a plugin did wrong, and when there
  // was no reply within `seconds` the `flag` that says so. A process that died or hangs is started anew the next time.
  Json ask(const Json& line, double seconds, const std::string& flag);
  // Asked now, and again whenever the process is started anew.
  void greet(const Json& line, double seconds, const std::string& flag);
  std::string shown() const;  // "the plugin a.py"

 private:
  void start();
  Json reply_to(const Json& line, double seconds, const std::string& flag);
  Json talked(const Json& line, double seconds, const std::string& flag);
  Json answer_to(const Json& question) const;
  const PluginOptions options_;
  const Json settings_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::mutex mutex_;
  std::unique_ptr<Program> program_;  // none before the first question, and after a failure
  Json names_;
  struct Greeting {
    Json line;
    double seconds;
    std::string flag;
  };
  std::optional<Greeting> greeting_;
};

// A reward that a plugin registers; with `op` "prm" a process reward model.
class PluginReward final : public Reward {
 public:
  PluginReward(std::string name, std::shared_ptr<Plugins> plugins, const RewardOptions& options,
               std::string op = "reward");
  std::vector<double> score(const std::vector<RewardInput>& answers) override;

 private:
  const std::string name_, op_;
  const std::shared_ptr<Plugins> plugins_;
  const double timeout_;  // seconds
  const bool skips_;
};

}  // namespace apus
