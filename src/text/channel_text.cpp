// SPDX-License-Identifier: Apache-2.0
#include "text/channel_text.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace apus {

namespace {
ChatParserOptions harmony_options(const Json& tools) {
  return {.format = ToolFormat::Harmony, .whole_calls = true, .tools = tools.is_array() ? &tools : nullptr};
}
}  // namespace

ChannelText::ChannelText(Json tools) : tools_(std::move(tools)), reader_(harmony_options(tools_)) {}

std::string ChannelText::closed() {
  switch (std::exchange(open_, Open::Nothing)) {
    case Open::Thought:
      return "\n</think>\n\n";
    case Open::Call:
      return "}\n</tool_call>";
    case Open::Nothing:
      break;
  }
  return {};
}

std::string ChannelText::written(const std::vector<ChatDelta>& deltas) {
  std::string out;
  for (const ChatDelta& d : deltas) {
    const bool thought = d.kind == ChatDelta::Kind::Reasoning, named = d.kind == ChatDelta::Kind::ToolName;
    const bool goes_on = (thought && open_ == Open::Thought) || d.kind == ChatDelta::Kind::ToolArguments;
    if (!goes_on) out += closed();
    if (thought && !goes_on) out += "<think>\n", open_ = Open::Thought;
    if (named) {
      const bool first = !any_ && out.empty();
      out += str(first ? "" : "\n", "<tool_call>\n{\"name\": ", json_text(Json(d.text)), ", \"arguments\": ");
      open_ = Open::Call;
    } else {
      out += d.text;
    }
  }
  any_ = any_ || !out.empty();
  return out;
}

// Thoughts that were cut off stay open, as those of other models do.
std::string ChannelText::finish() {
  std::string out = written(reader_.finish());
  if (open_ == Open::Call) out += closed();
  return out;
}

Json with_thinking(const Json& messages) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const auto trimmed = [](std::string text) {
    const size_t begin = text.find_first_not_of('\n'), end = text.find_last_not_of('\n');
    return begin == std::string::npos ? std::string() : text.substr(begin, end + 1 - begin);
  };
  Json out = messages;
  for (Json& m : out) {
    if (!m.is_object() || m.value("role", Json()) != "assistant" || m.contains("thinking")) continue;
    std::string thought;
    if (m.contains("reasoning_content") && m["reasoning_content"].is_string()) thought = m["reasoning_content"];
    if (thought.empty() && m.contains("content") && m["content"].is_string()) {
      const auto& content = m["content"].get_ref<const std::string&>();
      const size_t end = content.starts_with(kOpen) ? content.find(kClose) : std::string::npos;
      if (end == std::string::npos) continue;
      thought = content.substr(kOpen.size(), end - kOpen.size());
      m["content"] = trimmed(content.substr(end + kClose.size()));
    }
    if (thought = trimmed(std::move(thought)); thought.empty()) continue;
    // The template takes what stands before a call as a thought, and refuses both.
    const bool calls = m.contains("tool_calls") && !m["tool_calls"].empty();
    if (calls && m.contains("content") && m["content"].is_string() &&
        !m["content"].get_ref<const std::string&>().empty())
      continue;
    m["thinking"] = thought;
  }
  return out;
}

}  // namespace apus
