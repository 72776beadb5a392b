// SPDX-License-Identifier: Apache-2.0
// The formats' names, how to tell them from a chat template, and the parsing of whole texts.
#include "text/tool_calls.h"

#include <array>

#include "base/error.h"
#include "base/nearest.h"
#include "text/json_scanner.h"

namespace apus {

namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";
constexpr std::array<std::pair<ToolFormat, const char*>, 15> kFormats = {{{ToolFormat::None, "none"},
                                                                          {ToolFormat::Hermes, "hermes"},
                                                                          {ToolFormat::Llama3, "llama3"},
                                                                          {ToolFormat::QwenCoder, "qwen3_coder"},
                                                                          {ToolFormat::DeepSeek, "deepseek"},
                                                                          {ToolFormat::Mistral, "mistral"},
                                                                          {ToolFormat::SeedOss, "seed_oss"},
                                                                          {ToolFormat::Glm, "glm"},
                                                                          {ToolFormat::Kimi, "kimi_k2"},
                                                                          {ToolFormat::ToolList, "tool_list"},
                                                                          {ToolFormat::ToolCalls, "tool_calls"},
                                                                          {ToolFormat::Plugin, "internlm"},
                                                                          {ToolFormat::Harmony, "harmony"},
                                                                          {ToolFormat::React, "react"},
                                                                          {ToolFormat::Flower, "qwen_agent"}}};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

const char* tool_format_name(ToolFormat format) {
  for (const auto& [known, name] : kFormats) {
    if (known == format) return name;
  }
  return "none";
}

std::vector<std::string> tool_format_names() {
  std::vector<std::string> names;
  for (const auto& [format, name] : kFormats) names.emplace_back(name);
  return names;
}

ToolFormat tool_format(std::string_view name) {
  for (const auto& [format, known] : kFormats)
    if (name == known) return format;
  fail(Fault::Usage, "'", name, "' is not a format of tool calls; there are ", join(tool_format_names()));
}

ToolFormat guess_tool_format(std::string_view text) {
  if (has(text, "<seed:tool_call>")) return ToolFormat::SeedOss;
  if (has(text, "<function=") && has(text, "<parameter=")) return ToolFormat::QwenCoder;
  if (has(text, "tool▁call▁begin")) return ToolFormat::DeepSeek;
  if (has(text, "[TOOL_CALLS]")) return ToolFormat::Mistral;
  if (has(text, "<arg_key>")) return ToolFormat::Glm;  // before Hermes, whose calls begin alike
  if (has(text, "<tool_call>")) return ToolFormat::Hermes;
  if (has(text, "<|channel|>") && has(text, "<|message|>")) return ToolFormat::Harmony;
  if (has(text, "<|tool_call_argument_begin|>")) return ToolFormat::Kimi;
  if (has(text, "<|tool_call|>")) return ToolFormat::ToolList;
  if (has(text, "<tool_calls>")) return ToolFormat::ToolCalls;
  if (has(text, "<|action_start|>") && has(text, "<|plugin|>")) return ToolFormat::Plugin;
  if (has(text, "<|python_tag|>") || (has(text, "<|start_header_id|>") && has(text, "\"parameters\":")))
    return ToolFormat::Llama3;
  return ToolFormat::None;
}

bool guess_reasoning(std::string_view text) {
  return has(text, kThink) || has(text, kEndThink) || has(text, "<|channel|>analysis");
}

bool opens_reasoning(std::string_view prompt) {
  while (!prompt.empty() && is_blank(prompt.back())) prompt.remove_suffix(1);
  return prompt.ends_with(kThink);
}

void ChatPieces::add(const ChatDelta& delta) {
  switch (delta.kind) {
    case ChatDelta::Kind::Content:
      content += delta.text;
      break;
    case ChatDelta::Kind::Reasoning:
      reasoning += delta.text;
      break;
    case ChatDelta::Kind::ToolName:
      calls.push_back({delta.text, ""});
      break;
    case ChatDelta::Kind::ToolArguments:
      calls.back().arguments += delta.text;
      break;
  }
}

ChatPieces parse_chat(std::string_view text, ChatParserOptions options) {
  options.whole_calls = true;
  ChatParser parser(options);
  ChatPieces out;
  for (const ChatDelta& delta : parser.feed(text)) out.add(delta);
  for (const ChatDelta& delta : parser.finish()) out.add(delta);
  return out;
}

}  // namespace apus
