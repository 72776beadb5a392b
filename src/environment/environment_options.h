// SPDX-License-Identifier: Apache-2.0
// The options of answers in several turns: what replies to the model, and for how long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"
#include "reward/plugin_options.h"

namespace apus {

struct EnvironmentOptions : virtual PluginOptions {
  std::optional<std::string> environment;           // a name, external:PROGRAM, or an address; absent: one turn
  std::optional<std::string> multi_turn_scheduler;  // ms-swift's way to say it
  bool use_gym_env = false;
  int64_t max_turns = 10;
  std::string completion_length_limit_scope = "per_round";  // or total
  double environment_timeout = 60;                          // seconds that a turn may take
  std::string environment_failure = "stop";                 // or skip: the episodes end as they are

  // Empty: an answer is of one turn.
  std::string environment_name() const;
  bool several_turns() const { return !environment_name().empty(); }
  bool of_plugins() const;  // the scheduler or the environment is one that a plugin registers
  bool of_agents() const;   // programs that ask the model themselves
  bool total_length() const { return completion_length_limit_scope == "total"; }

  void fields(OptionTable& v);
  void check() const;
};

}  // namespace apus
