// SPDX-License-Identifier: Apache-2.0
// Answers in gpt-oss' Harmony form: messages one behind the other, each with a head that names its channel and to whom
// it goes. The prompt ends with "<|start|>assistant", so an answer begins inside the first head:
//   <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>the answer<|return|>
//   <|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_call.h"
#include "text/tool_calls.h"

namespace apus {

// Behind this mark stands what the user reads.
inline constexpr std::string_view kHarmonyFinal = "<|channel|>final<|message|>";
// Ends an answer that is a call; a stop token.
inline constexpr std::string_view kHarmonyCallEnd = "<|call|>";

class HarmonyReader : public AnswerReader, private CallSink {
 public:
  explicit HarmonyReader(ChatParserOptions options) : options_(options) {}
  std::vector<ChatDelta> feed(std::string_view text) override;
  std::vector<ChatDelta> finish() override;
  bool reasoning() const override { return in_body_ && kind_ == Kind::Thought; }

 private:
  enum class Kind { Content, Thought, Call };

  void run(bool end);
  bool head(bool end);  // true: something was decided
  bool body(bool end);
  void begin(std::string_view head);
  void begin_plain();
  void say(std::string_view text);
  void call(std::string_view text);
  void end_message();
  void give_up_call();
  bool is_tool(std::string_view name) const;

  void name(std::string_view text) override;
  void arguments(std::string_view json_part) override;
  void done() override;

  const ChatParserOptions options_;
  std::string pending_;  // not decided yet
  std::vector<ChatDelta> out_, held_;
  bool in_body_ = false;
  Kind kind_ = Kind::Content;
  std::optional<NamedArguments> call_;
  std::string function_;   // whose call it is
  std::string call_text_;  // all of the call's message, in case it is none
  bool call_shown_ = false, call_done_ = false;
  int calls_ = -1;
  bool thought_ = false, spoke_ = false;  // an earlier message's text was shown
  bool fresh_ = false;                    // nothing of this message was shown yet
};

}  // namespace apus
