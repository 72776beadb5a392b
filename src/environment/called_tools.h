// SPDX-License-Identifier: Apache-2.0
// Which tools a turn of the model calls, in whichever known form it writes them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "environment/environment.h"
#include "text/tool_calls.h"

namespace apus {

std::vector<ToolCall> called_tools(const std::string& text, const Json& tools);

// What is wrong with a call of one of these tools, as chat templates know them: its name, arguments that are missing,
// of another type, not among the values, or not known. Empty: nothing.
std::string fault_of_call(const ToolCall& call, const Json& tools);

// What the only tool of `tools` says to each of the first `most` calls: the fault of the call, or what `said` makes of
// its arguments.
EpisodeReply replies_to(const std::vector<ToolCall>& calls, size_t most, const Json& tools,
                        const std::function<std::string(const Json& arguments)>& said);

}  // namespace apus
