// SPDX-License-Identifier: Apache-2.0
#include "environment/environment_options.h"

#include "base/error.h"
#include "environment/environment.h"

namespace apus {

void EnvironmentOptions::fields(OptionTable& v) {
  v.group("Several turns");
  v("environment", environment,
    "what replies to the model, so that it goes on: " + known_environments() + " (docs/environments.md)")
      .common()
      .alias("gym_env", "ms-swift's name")
      .shown_default("none: an answer is of one turn")
      .noted();
  v("multi_turn_scheduler", multi_turn_scheduler, "another way to name it; gym_scheduler: as --environment says")
      .noted();
  v("use_gym_env", use_gym_env, "--environment must be given, and its reward counts, as it always does");
  v("max_turns", max_turns, "turns of the model in one answer").common().at_least(1).noted();
  v("completion_length_limit_scope", completion_length_limit_scope,
    "--max_completion_length is of each turn, or of all turns of an answer together")
      .choices({"per_round", "total"})
      .noted();
  v("environment_timeout", environment_timeout, "seconds that a program, service or agent may take for a turn")
      .above(0);
  v("environment_failure", environment_failure,
    "one that died, hung or replied what cannot be read: stop the run, or skip the rest of the answers under way")
      .choices({"stop", "skip"});
}

namespace {
std::string environment_name_of(const std::string& scheduler) {
  if (scheduler == "gym_scheduler") return "";
  return scheduler == "math_tip_trick" ? "second_try" : scheduler;
}
}  // namespace

std::string EnvironmentOptions::environment_name() const {
  return environment ? *environment : environment_name_of(multi_turn_scheduler.value_or(""));
}

// A scheduler that is neither ours nor another word for --environment; or an environment that nobody here knows.
bool EnvironmentOptions::of_plugins() const {
  if (external_plugins.empty()) return false;
  if (multi_turn_scheduler && *multi_turn_scheduler != "gym_scheduler" && multi_turn_scheduler != environment)
    return !is_known_environment(environment_name_of(*multi_turn_scheduler));
  return environment && !is_known_environment(*environment);
}

bool EnvironmentOptions::of_agents() const { return environment_name().rfind(kAgentEnvironment, 0) == 0; }

void EnvironmentOptions::check() const {
  if (of_plugins()) return;  // environment/plugin.h asks them
  require(!(use_gym_env || multi_turn_scheduler == "gym_scheduler") || environment, Fault::Usage,
          "which environment? --environment NAME, external:PROGRAM or http://HOST:PORT; there are ",
          known_environments());
  require(!environment || !multi_turn_scheduler || *multi_turn_scheduler == "gym_scheduler" ||
              multi_turn_scheduler == environment,
          Fault::Usage, "--multi_turn_scheduler ", multi_turn_scheduler.value_or(""), " and --environment ",
          environment.value_or(""), " name two environments: give one of them");
  if (several_turns()) check_environment(environment_name());
}

}  // namespace apus
