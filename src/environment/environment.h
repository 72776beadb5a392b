// SPDX-License-Identifier: Apache-2.0
// What replies to a model that answers in several turns: a game, a tool, a judge. An episode is one conversation with
// it: reset by the row that asks, then a step for every turn of the model until it is done. Environments register
// themselves under a name; a program of any language (environment/program.h) or an HTTP service (environment/service.h)
// can be one too. No tensor library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/registry.h"
#include "environment/environment_options.h"

namespace apus {

inline constexpr const char *kExternalEnvironment = "external:", *kAgentEnvironment = "agent:", *kOpenEnv = "openenv:";

class Chat;  // engine/answer/chat.h

// How the model is spoken with where an environment offers an API to do so; without a chat none can.
struct Speech {
  std::shared_ptr<const Chat> chat;
  std::vector<int32_t> ends;  // the tokens that end an answer
};

// How an episode begins. Those of a group begin alike: what is drawn is drawn from `seed`.
struct EpisodeStart {
  int64_t episode = 0;  // its number, in this round
  const Json* row = nullptr;
  uint64_t seed = 0;
};

// A turn of the model.
struct EpisodeTurn {
  int64_t episode = 0, turn = 0;  // from 0
  std::string text;
  std::vector<int32_t> tokens;
  bool cut = false;  // by a limit of tokens
};

struct EpisodeReply {
  Json messages = Json::array();  // of reset: the conversation that asks, where not the row's; else what comes next
  // Pictures of the messages (paths, URLs, data URIs), in the order of their <image> tags; where these are fewer,
  // before the last message's text.
  Json images = Json::array();
  std::vector<int32_t> tokens = {};  // instead of messages: the very tokens that come next
  // Of an agent, which may talk in several conversations: the one that goes on, numbered as they began. The next number
  // begins one: the tokens are all that the model reads in it. Absent: the one that spoke last.
  std::optional<size_t> conversation = {};
  std::string continuation = {};  // instead: what stands behind the model's words, and it goes on in the same message
  double reward = 0;              // of this turn; what an episode is worth is the sum
  bool done = false;
  std::string failure = {};  // why the episode ended before its time; its reward is no opinion then
};

class Environment {
 public:
  virtual ~Environment() = default;
  // Of some episodes, whose replies are in the order of what was asked. Other threads may reset and step others.
  virtual std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) = 0;
  virtual std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) = 0;
  // How many such calls it takes at the same time, of one episode each; 1: a call is given all that waits for one.
  virtual size_t resets_at_once() const { return 1; }
  virtual size_t steps_at_once() const { return 1; }
  virtual void close() = 0;  // all episodes of the round are over
  // Tools that the model is told of, where the row brings none: null, or as chat templates know them.
  virtual Json tools() const { return nullptr; }
};

// One episode of an environment that is written here.
class Episode {
 public:
  virtual ~Episode() = default;
  virtual EpisodeReply step(const EpisodeTurn& turn) = 0;
};

// Keeps the episodes of environments that are written here.
class LocalEnvironment : public Environment {
 public:
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  size_t steps_at_once() const override;  // some wait for programs
  void close() override { episodes_.clear(); }

 protected:
  virtual std::unique_ptr<Episode> begin(const Json& row, uint64_t seed) const = 0;

 private:
  std::map<int64_t, std::unique_ptr<Episode>> episodes_;
};

using MakeEnvironment = std::function<std::unique_ptr<Environment>(const EnvironmentOptions&)>;
// E is a LocalEnvironment's episode: E(row, seed), and static Json tools().
template <class E>
struct RegisterEnvironment {
  explicit RegisterEnvironment(const char* name) {
    class OfThese final : public LocalEnvironment {
      std::unique_ptr<Episode> begin(const Json& row, uint64_t seed) const override {
        return std::make_unique<E>(row, seed);
      }
      Json tools() const override { return E::tools(); }
    };
    Registry<MakeEnvironment>::of().add(
        name, [](const EnvironmentOptions&) -> std::unique_ptr<Environment> { return std::make_unique<OfThese>(); });
  }
};

std::string known_environments();                 // for messages
void check_environment(const std::string& name);  // Fault::Usage with what there is
bool is_known_environment(const std::string& name);
// Programs that ask the model themselves, a process for each episode (serve/agents.cpp).
using MakeAgents =
    std::function<std::unique_ptr<Environment>(const std::string& command, const EnvironmentOptions&, const Speech&)>;
class Plugins;
// `plugins`: of --external_plugins, which may have it.
std::unique_ptr<Environment> make_environment(const EnvironmentOptions& options,
                                              const std::shared_ptr<Plugins>& plugins = nullptr,
                                              const Speech& speech = {});
std::string environment_shown(const std::string& name);  // as logs call it: a program by its file

// A reply as programs and services write it: {"observation": text, or a list of messages, or {"messages"}, or
// {"text"}; "images"; "observation_ids"; "continuation"; "reward"; "done"}. `where` begins an error (Fault::Data).
EpisodeReply read_reply(const Json& reply, const std::string& where);

Json user_says(const std::string& text);                                        // [{"role": "user", ...}]
Json tool_says(const std::string& name, const std::string& text);               // [{"role": "tool", ...}]
const Json* column(const Json& row, std::initializer_list<const char*> names);  // the first that is there and not null
std::string column_text(const Json& value);                                     // a string as it is, else as JSON
// What answers of this environment are compared with; Fault::Data where the row has none.
std::string solution_of(const Json& row, const char* environment);

}  // namespace apus
