// SPDX-License-Identifier: Apache-2.0
// An environment of OpenEnv (meta-pytorch): `--environment openenv:http://HOST:PORT`. Its server keeps an episode for
// as long as a WebSocket at /ws is open: {"type": "reset", "data"} and {"type": "step", "data": an action}, both
// answered with {"type": "observation", "data": {"observation", "reward", "done"}}. GET /schema tells of actions. Where
// these are calls of MCP tools, the action {"type": "list_tools"} tells which there are.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "environment/environment.h"
#include "hub/web_socket.h"
#include "text/tool_calls.h"

namespace apus {

// What a turn of the model is to an environment with such actions (a JSON schema): the object that it wrote, or its
// text, its number or its tokens as the one field that an action has. Null, with what to tell the model: none.
Json open_env_action(const Json& schema, const EpisodeTurn& turn, std::string& told);
// What the model is told of an observation: its messages, a text, or all of it as JSON; empty: nothing.
Json open_env_messages(const Json& observation);

// An MCP server's list of tools, as chat templates know them; null: there are none.
Json open_env_tools(const Json& listed);
// What a tool that was called says: its result, or what went wrong.
std::string open_env_result(const Json& observation);

class OpenEnv final : public Environment {
 public:
  OpenEnv(std::string address, const EnvironmentOptions& options);
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override;
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override;
  Json tools() const override;
  size_t resets_at_once() const override { return kAtOnce; }
  size_t steps_at_once() const override { return kAtOnce; }
  void close() override;

 private:
  static constexpr size_t kAtOnce = 16;  // episodes
  void learn_actions() const;
  Json listed_tools() const;
  EpisodeReply after_calls(WebSocket& session, const std::vector<ToolCall>& calls) const;
  std::unique_ptr<WebSocket>& session_of(int64_t episode);
  EpisodeReply begin(WebSocket& session, const EpisodeStart& start) const;
  EpisodeReply after(WebSocket& session, const EpisodeTurn& turn) const;
  // What came, or Fault::Data with the words of an error; `code`: of one that it said itself.
  Json asked(WebSocket& session, const Json& message, std::string* code = nullptr) const;
  template <class Of, class Ask>
  std::vector<EpisodeReply> all(const std::vector<Of>& of, const Ask& ask) const;

  const std::string address_;
  const double timeout_;  // seconds
  const bool skips_;
  mutable std::mutex mutex_;  // of all below
  // What the server tells once, and then stays: the schema of an action (absent: not asked yet), and tools.
  mutable std::optional<Json> action_;
  mutable Json tools_;
  std::map<int64_t, std::unique_ptr<WebSocket>> sessions_;
};

}  // namespace apus
