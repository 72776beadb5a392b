// SPDX-License-Identifier: Apache-2.0
// Tools by their schema: the row's column "tools" describes them, "calls" lists the calls that are to be made,
// [{"name", "arguments", "result"}]. A call that the schema does not allow is told why; one that is asked for gets its
// "result". Worth the share of the calls that were made, each once; a turn without a call is the end.
#include <algorithm>

#include "base/error.h"
#include "environment/called_tools.h"
#include "environment/environment.h"

namespace apus {
namespace {

constexpr size_t kMostCallsOfTurn = 16;

class LocalTools final : public Episode {
 public:
  LocalTools(const Json& row, uint64_t) {
    const Json *tools = column(row, {"tools"}), *calls = column(row, {"calls"});
    require(tools && tools->is_array() && !tools->empty(), Fault::Data,
            "tools: the row's column 'tools' must list tools with their schemas");
    require(calls && calls->is_array() && !calls->empty(), Fault::Data,
            "tools: the row's column 'calls' must list the calls to be made: [{\"name\", \"arguments\", \"result\"}]");
    for (const Json& call : *calls)
      require(call.is_object() && call.contains("name") && call["name"].is_string(), Fault::Data,
              "tools: ", call.dump().substr(0, 200), " in the row's column 'calls' has no name");
    tools_ = *tools, wanted_ = *calls;
    made_.assign(wanted_.size(), false);
  }
  static Json tools() { return nullptr; }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, tools_);
    EpisodeReply reply;
    for (size_t i = 0; i < std::min(calls.size(), kMostCallsOfTurn); ++i) {
      const std::string fault = fault_of_call(calls[i], tools_);
      const std::string result = fault.empty() ? made(calls[i], reply.reward) : "error: " + fault;
      for (const Json& message : tool_says(calls[i].name, result)) reply.messages.push_back(message);
    }
    const bool all = std::all_of(made_.begin(), made_.end(), [](bool made) { return made; });
    reply.done = calls.empty() || all;
    return reply;
  }

 private:
  // What the call gives; the reward grows when it was asked for.
  std::string made(const ToolCall& call, double& reward) {
    const Json arguments = parse_json(call.arguments, "the arguments");
    for (size_t k = 0; k < wanted_.size(); ++k) {
      if (wanted_[k]["name"] != call.name || !same(wanted_[k].value("arguments", Json::object()), arguments)) continue;
      if (!made_[k]) reward += 1.0 / static_cast<double>(wanted_.size());
      made_[k] = true;
      return column_text(wanted_[k].value("result", Json("done")));
    }
    return "no result";
  }
  static bool same(const Json& a, const Json& b) {  // whatever the order of the keys
    return nlohmann::json(a) == nlohmann::json(b);
  }
  Json tools_, wanted_;
  std::vector<bool> made_;
};

const RegisterEnvironment<LocalTools> tools_by_schema("tools");

}  // namespace
}  // namespace apus
