// SPDX-License-Identifier: Apache-2.0
// How tools are told to a model, called and answered where that is not left to the checkpoint's chat template
// (--agent_template): the messages are rewritten so that tools stand in the system message, calls in what the assistant
// says, and results in a message of the user or behind the call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/jinja.h"
#include "text/tool_calls.h"

namespace apus {

struct AgentForm;

class AgentTemplate {
 public:
  static AgentTemplate named(const std::string& name);  // Fault::Usage with the known ones
  static std::vector<std::string> names();
  // The text at which a model has to stop, since a result stands behind it: "Observation:"; empty: it ends its turn.
  static std::string stop_of(const std::string& name);

  std::string name() const;
  ToolFormat format() const;  // of the calls in answers
  // The checkpoint's own chat template writes this form of calls and results.
  bool of_checkpoint() const;
  // And says nothing of tools: they are told in the system message.
  bool tells_tools() const;
  // The form whose calls this template of a checkpoint writes without telling tools; "": there is none.
  static std::string untold_in(std::string_view chat_template);
  // Results stand within the assistant's message, which goes on behind them.
  bool joins_results() const;
  // `tools` may be null. No message is left that has tool_calls or the role "tool", but for those that the checkpoint's
  // template writes.
  Json without_tools(const Json& messages, const Json& tools) const;

 private:
  explicit AgentTemplate(const AgentForm& form);
  std::string calls_text(const Json& message) const;
  std::string results_text(const std::vector<std::string>& results) const;

  const AgentForm* form_;
  std::vector<JinjaTemplate> parts_;  // tools, calls, results
};

}  // namespace apus
