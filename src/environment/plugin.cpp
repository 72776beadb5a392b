// SPDX-License-Identifier: Apache-2.0
#include "environment/plugin.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "reward/external.h"

namespace apus {
namespace {

std::string listed(const Json& names) {
  std::vector<std::string> out;
  for (const Json& name : names) out.push_back(name.get<std::string>());
  return out.empty() ? "none" : join(out);
}

bool is_built_in_reward(const std::string& name) { return Registry<MakeReward>::of().find(name) || is_program(name); }

}  // namespace

PluginEnvironment::PluginEnvironment(std::shared_ptr<Plugins> plugins, const EnvironmentOptions& options)
    : plugins_(std::move(plugins)),
      timeout_(options.environment_timeout),
      skips_(options.environment_failure == "skip") {
  plugins_->greet({{"op", "play"},
                   {"scheduler", options.multi_turn_scheduler.value_or("gym_scheduler")},
                   {"gym_env", options.environment ? Json(*options.environment) : Json()},
                   {"max_turns", options.max_turns}},
                  timeout_, "--environment_timeout");
}

std::vector<EpisodeReply> PluginEnvironment::reset(const std::vector<EpisodeStart>& starts) {
  Json episodes = Json::array();
  for (const EpisodeStart& start : starts) episodes.push_back({{"id", start.episode}, {"row", *start.row}});
  return asked("reset", std::move(episodes));
}

std::vector<EpisodeReply> PluginEnvironment::step(const std::vector<EpisodeTurn>& turns) {
  Json episodes = Json::array();
  for (const EpisodeTurn& turn : turns)
    episodes.push_back({{"id", turn.episode},
                        {"turn", turn.turn},
                        {"completion", turn.text},
                        {"completion_ids", turn.tokens},
                        {"truncated", turn.cut}});
  return asked("step", std::move(episodes));
}

void PluginEnvironment::close() { plugins_->ask({{"op", "close"}}, timeout_, "--environment_timeout"); }

std::vector<EpisodeReply> PluginEnvironment::asked(const char* op, Json episodes) {
  const size_t count = episodes.size();
  try {
    const Json reply =
        plugins_->ask({{"op", op}, {"episodes", std::move(episodes)}}, timeout_, "--environment_timeout");
    const Json& replies = reply.at("replies");
    require(replies.size() == count, Fault::Data, plugins_->shown(), " gave ", replies.size(), " replies to ", count);
    std::vector<EpisodeReply> out;
    for (const Json& one : replies) out.push_back(read_reply(one, "what " + plugins_->shown() + " replied"));
    return out;
  } catch (const Error& error) {
    if (!skips_ || error.at.fault != Fault::Data) throw;
    return std::vector<EpisodeReply>(count, {.done = true, .failure = error.what()});
  }
}

std::shared_ptr<Plugins> plugins_of(const PluginOptions& options, Json settings,
                                    std::shared_ptr<const Tokenizer> tokenizer) {
  if (options.external_plugins.empty()) return nullptr;
  return std::make_shared<Plugins>(options, std::move(settings), std::move(tokenizer));
}

void check_plugins(const PluginOptions& options, const std::vector<std::string>& rewards,
                   const EnvironmentOptions* environment) {
  options.check();
  const std::shared_ptr<Plugins> plugins = plugins_of(options, Json::object(), nullptr);
  if (!plugins) return;
  const Json& names = plugins->names();
  for (const std::string& name : rewards)
    require(plugins->has("rewards", name) || is_built_in_reward(name), Fault::Usage, "--reward_funcs ", name,
            " is registered by none of --external_plugins, which have ", listed(names["rewards"]),
            "; and it is none of the program's own");
  if (environment && environment->of_plugins()) {
    const std::string scheduler = environment->multi_turn_scheduler.value_or("gym_scheduler");
    require(plugins->has("schedulers", scheduler), Fault::Usage, "--multi_turn_scheduler ", scheduler,
            " is registered by none of --external_plugins, which have ", listed(names["schedulers"]));
    require(!environment->environment || plugins->has("environments", *environment->environment), Fault::Usage,
            "--environment ", environment->environment.value_or(""),
            " is registered by none of --external_plugins, which have ", listed(names["environments"]), "; there are ",
            known_environments());
    PluginEnvironment(plugins, *environment);  // refuses schedulers that cannot be run here
  }
  if (!names["datasets"].empty())
    log_warning(plugins->shown(), " describes the datasets ", listed(names["datasets"]),
                ": their rows are not prepared by it here; give --dataset rows as they shall be");
}

}  // namespace apus
