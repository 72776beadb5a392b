// SPDX-License-Identifier: Apache-2.0
#include "environment/environment.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/program.h"
#include "environment/open_env.h"
#include "environment/plugin.h"
#include "environment/program.h"
#include "environment/service.h"

namespace apus {
namespace {

constexpr size_t kMostObservation = 1 << 20;  // bytes
constexpr size_t kMostWorkers = 16;
constexpr size_t kMostImages = 16, kMostImage = 32 << 20;  // bytes

bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }
bool is_address(const std::string& name) { return begins(name, "http://") || begins(name, "https://"); }
bool names_program(const std::string& name) {
  return begins(name, kExternalEnvironment) || begins(name, kAgentEnvironment);
}
// search:FOLDER is `search`, with a folder.
std::string registered_name(const std::string& name) { return begins(name, "search:") ? "search" : name; }
std::string behind_colon(const std::string& name) { return name.substr(name.find(':') + 1); }

Json messages_of(const Json& observation, const std::string& where) {
  if (observation.is_null()) return Json::array();
  if (observation.is_string()) return user_says(observation.get<std::string>());
  if (observation.is_object())
    for (const char* name : {"messages", "text", "prompt", "content"})
      if (observation.contains(name)) return messages_of(observation[name], where);
  require(observation.is_array(), Fault::Data, where, ": 'observation' is ", observation.dump().substr(0, 200),
          "; a text is wanted, or a list of messages, or an object with one of these as 'text' or 'messages'");
  for (const Json& message : observation)
    require(message.is_object() && message.contains("role") && message["role"].is_string() &&
                message.contains("content") && message["content"].is_string(),
            Fault::Data, where, ": ", message.dump().substr(0, 200),
            " in 'observation' is no message; {\"role\": \"user\", \"content\": \"...\"} is one");
  return observation;
}

}  // namespace

std::vector<EpisodeReply> LocalEnvironment::reset(const std::vector<EpisodeStart>& starts) {
  for (const EpisodeStart& start : starts) episodes_[start.episode] = begin(*start.row, start.seed);
  return std::vector<EpisodeReply>(starts.size());
}

std::vector<EpisodeReply> LocalEnvironment::step(const std::vector<EpisodeTurn>& turns) {
  std::vector<EpisodeReply> out;
  for (const EpisodeTurn& turn : turns) out.push_back(episodes_.at(turn.episode)->step(turn));
  return out;
}

size_t LocalEnvironment::steps_at_once() const {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostWorkers);
}

std::string known_environments() {
  std::string names;
  for (const auto& [name, make] : Registry<MakeEnvironment>::of().all())
    names += name == "search" ? "search:FOLDER, " : name + ", ";
  return names + kExternalEnvironment + "PROGRAM, " + kAgentEnvironment + "PROGRAM, http://HOST:PORT, " + kOpenEnv +
         "http://HOST:PORT";
}

void check_environment(const std::string& name) {
  if (is_address(name)) return;
  if (begins(name, kOpenEnv)) {
    require(is_address(behind_colon(name)), Fault::Usage, "--environment ", name,
            " is no address of a server: openenv:http://127.0.0.1:8000");
    return;
  }
  if (names_program(name)) {
    require(!behind_colon(name).empty(), Fault::Usage, "--environment ", name,
            " names no program: external:./environment.py, agent:./agent.py");
    return;
  }
  require(Registry<MakeEnvironment>::of().find(registered_name(name)), Fault::Usage, "no environment is named '", name,
          "'; there are ", known_environments(),
          ". One written for ms-swift is run with --external_plugins FILE.py; any other becomes a program: "
          "--environment \"external:python3 ",
          name, ".py\" (docs/environments.md)");
}

bool is_known_environment(const std::string& name) {
  return is_address(name) || begins(name, kOpenEnv) || names_program(name) ||
         Registry<MakeEnvironment>::of().find(registered_name(name));
}

std::unique_ptr<Environment> make_environment(const EnvironmentOptions& options,
                                              const std::shared_ptr<Plugins>& plugins, const Speech& speech) {
  if (plugins && options.of_plugins()) return std::make_unique<PluginEnvironment>(plugins, options);
  const std::string name = options.environment_name();
  check_environment(name);
  if (is_address(name)) return std::make_unique<ServiceEnvironment>(name, options);
  if (begins(name, kOpenEnv)) return std::make_unique<OpenEnv>(behind_colon(name), options);
  if (begins(name, kExternalEnvironment)) return std::make_unique<ProgramEnvironment>(behind_colon(name), options);
  if (begins(name, kAgentEnvironment))
    return (*Registry<MakeAgents>::of().find(kAgentEnvironment))(behind_colon(name), options, speech);
  return (*Registry<MakeEnvironment>::of().find(registered_name(name)))(options);
}

std::string environment_shown(const std::string& name) {
  if (begins(name, kOpenEnv)) return environment_shown(behind_colon(name));
  if (names_program(name)) return program_name(behind_colon(name));
  return is_address(name) ? name.substr(name.find("://") + 3) : registered_name(name);
}

EpisodeReply read_reply(const Json& reply, const std::string& where) {
  require(reply.is_object(), Fault::Data, where, ": ", reply.dump().substr(0, 200), " is no object");
  EpisodeReply out;
  if (const Json* observation = column(reply, {"observation", "messages"}))
    out.messages = messages_of(*observation, where);
  size_t bytes = 0;
  for (const Json& message : out.messages) bytes += message["content"].get_ref<const std::string&>().size();
  require(bytes <= kMostObservation, Fault::Data, where, ": an observation of ", bytes, " bytes; at most ",
          kMostObservation, " are read");
  if (const Json* images = column(reply, {"images", "image"})) {
    out.images = images->is_array() ? *images : Json::array({*images});
    require(out.images.size() <= kMostImages, Fault::Data, where, ": ", out.images.size(), " 'images'; at most ",
            kMostImages, " are read");
    for (const Json& image : out.images)
      require(image.is_string() && image.get_ref<const std::string&>().size() <= kMostImage, Fault::Data, where,
              ": 'images' must be paths, URLs or data URIs, of at most ", kMostImage, " bytes");
    require(out.images.empty() || !out.messages.empty(), Fault::Data, where,
            ": 'images' stand in an observation, and there is none");
  }
  if (const Json* ids = column(reply, {"observation_ids"})) {
    require(ids->is_array() && ids->size() <= kMostObservation, Fault::Data, where,
            ": 'observation_ids' must be a list of token ids");
    for (const Json& id : *ids) {
      require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < INT32_MAX, Fault::Data, where,
              ": ", id.dump(), " in 'observation_ids' is no token id");
      out.tokens.push_back(id.get<int32_t>());
    }
  }
  if (const Json* more = column(reply, {"continuation"})) {
    require(more->is_string() && more->get_ref<const std::string&>().size() <= kMostObservation, Fault::Data, where,
            ": 'continuation' must be a text, of at most ", kMostObservation, " bytes");
    out.continuation = more->get<std::string>();
  }
  if (const Json* reward = column(reply, {"reward"})) {
    require((reward->is_number() && std::isfinite(reward->get<double>())) || reward->is_boolean(), Fault::Data, where,
            ": 'reward' is ", reward->dump().substr(0, 100), ", and no number");
    out.reward = reward->is_boolean() ? double(reward->get<bool>()) : reward->get<double>();
  }
  if (const Json* done = column(reply, {"done"})) {
    require(done->is_boolean(), Fault::Data, where, ": 'done' is ", done->dump().substr(0, 100),
            ", and neither true nor false");
    out.done = done->get<bool>();
  }
  return out;
}

Json user_says(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }

Json tool_says(const std::string& name, const std::string& text) {
  return Json::array({{{"role", "tool"}, {"name", name}, {"content", text}}});
}

const Json* column(const Json& row, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = row.find(name); found != row.end() && !found->is_null()) return &*found;
  return nullptr;
}

std::string column_text(const Json& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

std::string solution_of(const Json& row, const char* environment) {
  const Json* solution = column(row, {"solution", "answer", "ground_truth"});
  require(solution, Fault::Data, environment,
          " compares answers with the column 'solution', and the row has none: ", json_text(row).substr(0, 200));
  return column_text(*solution);
}

}  // namespace apus
