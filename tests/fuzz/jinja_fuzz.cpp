// SPDX-License-Identifier: Apache-2.0
// Templates of any shape: they render, or one TemplateError says why not, within small limits.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const apus::Json context = apus::parse_exact_json(R"({
      "s": "h\u00e9llo <b>W\u00f6rld</b>", "l": [3, 1, 2], "d": {"b": 1, "a": [1, 2.5], "items": null}, "n": null, "f": 1.5,
      "big": 123456789012345678901234567890, "t": true,
      "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]})");
  apus::RenderLimits limits;
  limits.steps = 20'000;
  limits.seconds = 1;
  limits.memory_bytes = 4 << 20;
  limits.output_bytes = 1 << 20;
  limits.calls = 50;
  limits.stack_bytes = 512 << 10;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto parsed = apus::JinjaTemplate::parse(text, "fuzz");
    const auto out = parsed.render(context, apus::LocalTime{2025, 7, 4, 12, 34, 56, 0}, limits);
    for (const auto& [begin, end] : out.generation) {
      if (begin > end || end > out.text.size()) __builtin_trap();
    }
  } catch (const apus::TemplateError&) {}
  return 0;
}
