// SPDX-License-Identifier: Apache-2.0
// What a model says, taken apart: reasoning (<think>...</think>), tool calls in the format its template teaches, and
// the rest as content; for whole texts, and for a stream without ever showing half a marker. Newlines around reasoning
// and before calls belong to the format and are dropped.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace apus {

enum class ToolFormat {
  None,    // calls are not looked for
  Hermes,  // <tool_call>{"name", "arguments"}</tool_call>
  Llama3,  // {"name", "parameters"} alone, after <|python_tag|> or not
  // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
  QwenCoder,
  // <|tool_call_begin|>name<|tool_sep|>{...} with DeepSeek's bars, V3 (fenced) and V3.1.
  DeepSeek,
  // [TOOL_CALLS][{"name", "arguments"}] or [TOOL_CALLS]name[ARGS]{...}
  Mistral,
  // Qwen3-Coder's between <seed:tool_call> and </seed:tool_call>
  SeedOss,
  // <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>
  Glm,
  // <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|> (Kimi K2)
  Kimi,
  ToolList,   // <|tool_call|>[{"name", "arguments"}], <|/tool_call|> behind it or not (Phi-4-mini, Granite)
  ToolCalls,  // <tool_calls>{"name", "arguments"} ... or a list </tool_calls> (MiniMax, Hunyuan)
  Plugin,     // <|action_start|><|plugin|>{"name", "parameters"}<|action_end|> (InternLM)
  // Messages of channels, <|channel|>analysis<|message|>...<|end|>: thoughts, calls and answers alike (gpt-oss)
  Harmony,
  React,   // Action: name, Action Input: {...}, Observation:
  Flower,  // the same in other words: ✿FUNCTION✿:, ✿ARGS✿:, ✿RESULT✿:
};

const char* tool_format_name(ToolFormat format);  // "none", "hermes", ...
std::vector<std::string> tool_format_names();
ToolFormat tool_format(std::string_view name);                 // Fault::Usage with the known ones
ToolFormat guess_tool_format(std::string_view chat_template);  // by the markers in the template's text
bool guess_reasoning(std::string_view chat_template);          // does it know <think>?
bool opens_reasoning(std::string_view rendered_prompt);        // does the prompt end inside an open <think>?

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

// A piece of a message, in order. A tool call's first delta carries its name,
// the following ones parts of its arguments.
struct ChatDelta {
  enum class Kind { Content, Reasoning, ToolName, ToolArguments } kind;
  std::string text;
  int call = -1;  // which tool call, from 0
};

struct ChatPieces {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  void add(const ChatDelta& delta);
};

struct ChatParserOptions {
  ToolFormat format = ToolFormat::None;
  bool reasoning = true;             // split off <think>...</think>
  bool starts_in_reasoning = false;  // the prompt ended with <think>
  // Show a call only when it is complete and valid, not while it grows.
  bool whole_calls = false;
  // What may be called: QwenCoder's parameters take their types from here.
  const Json* tools = nullptr;
};

// Takes answers of one kind apart: thoughts and calls between marks, or Harmony's messages.
class AnswerReader {
 public:
  virtual ~AnswerReader() = default;
  virtual std::vector<ChatDelta> feed(std::string_view text) = 0;
  virtual std::vector<ChatDelta> finish() = 0;
  virtual bool reasoning() const = 0;
};

// Feed it the text as it comes; every delta is final. A malformed call comes back as content; one that turns out
// malformed only after its first arguments were shown ends there, and the rest comes as content.
class ChatParser {
 public:
  explicit ChatParser(ChatParserOptions options);
  std::vector<ChatDelta> feed(std::string_view text) { return reader_->feed(text); }
  // The end of the answer: what was held back comes out.
  std::vector<ChatDelta> finish() { return reader_->finish(); }
  bool reasoning() const { return reader_->reasoning(); }  // is what comes next part of the reasoning?

 private:
  std::unique_ptr<AnswerReader> reader_;
};

// A whole text at once; calls that are not complete and valid stay in the content.
ChatPieces parse_chat(std::string_view text, ChatParserOptions options);

}  // namespace apus
