// SPDX-License-Identifier: Apache-2.0
// What gpt-oss says in Harmony's channels, as one text as other models write it: <think> around thoughts, <tool_call>
// around calls, and the answer; and the way back, for templates that take thoughts as a field of a message.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tool_calls.h"

namespace apus {

class ChannelText {
 public:
  explicit ChannelText(Json tools);  // what may be called; null: nothing
  ChannelText(const ChannelText&) = delete;

  std::string feed(std::string_view text) { return written(reader_.feed(text)); }
  std::string finish();  // the end of the answer: what was held back comes out

 private:
  std::string written(const std::vector<ChatDelta>& deltas);
  std::string closed();  // the end of what is open

  const Json tools_;
  ChatParser reader_;
  enum class Open { Nothing, Thought, Call } open_ = Open::Nothing;
  bool any_ = false;  // something was written
};

// Messages whose thoughts (reasoning_content, or <think> at the beginning of the content) are their `thinking`.
Json with_thinking(const Json& messages);

}  // namespace apus
