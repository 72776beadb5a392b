// SPDX-License-Identifier: Apache-2.0
// What a model may say, in every format and cut into pieces: nothing crashes, calls come in order, complete calls are
// JSON. The first byte chooses the format and the size of the pieces.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/tool_calls.h"

namespace {
constexpr int kFormats = static_cast<int>(apus::ToolFormat::Flower) + 1;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  apus::ChatParserOptions options;
  options.format = static_cast<apus::ToolFormat>(data[0] % kFormats);
  options.starts_in_reasoning = (data[0] & 64) != 0;
  const apus::Json tools = {{{"function", {{"name", "f"}}}}};
  options.tools = &tools;
  const size_t step = 1 + data[0] / kFormats % 8;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  apus::ChatParser parser(options);
  int calls = 0;
  const auto check = [&](const std::vector<apus::ChatDelta>& deltas) {
    for (const apus::ChatDelta& delta : deltas) {
      calls += delta.kind == apus::ChatDelta::Kind::ToolName;
      const bool of_call =
          delta.kind == apus::ChatDelta::Kind::ToolName || delta.kind == apus::ChatDelta::Kind::ToolArguments;
      if (of_call != (delta.call >= 0) || (of_call && delta.call != calls - 1)) __builtin_trap();
    }
  };
  for (size_t at = 0; at < text.size(); at += step) check(parser.feed(text.substr(at, step)));
  check(parser.finish());
  for (const apus::ToolCall& call : apus::parse_chat(text, options).calls) {
    if (call.name.empty() && options.format != apus::ToolFormat::QwenCoder) __builtin_trap();
    const bool utf8 = apus::Json::accept("\"" + std::string(call.name) + "\"");
    if (utf8 && !apus::Json::accept(call.arguments) && !call.arguments.empty() &&
        call.arguments.find_first_not_of(" {}[]\",:") == std::string::npos)
      __builtin_trap();
  }
  return 0;
}
