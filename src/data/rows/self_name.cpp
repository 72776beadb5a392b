// SPDX-License-Identifier: Apache-2.0
#include "data/rows/self_name.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace apus {
namespace {

void replace_all(std::string& text, const std::string& from, const std::vector<std::string>& values, bool chinese) {
  if (values.empty()) return;
  const std::string& to = chinese ? values.front() : values.back();
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

bool has_chinese(const std::string& text) {  // a lead byte of U+4000 to U+9FFF
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0xE4 && c <= 0xE9; });
}

}  // namespace

void put_names(Json& messages, const Json& tag, const SelfName& names) {
  if (names.empty() || !messages.is_array()) return;
  bool chinese = tag == "zh";
  if (!tag.is_string())
    for (const Json& m : messages)
      if (m.contains("content") && m["content"].is_string())
        chinese = chinese || has_chinese(m["content"].get_ref<const std::string&>());
  for (Json& m : messages) {
    if (!m.contains("content") || !m["content"].is_string()) continue;
    std::string text = m["content"].get<std::string>();
    replace_all(text, "{{NAME}}", names.name, chinese);
    replace_all(text, "{{AUTHOR}}", names.author, chinese);
    m["content"] = std::move(text);
  }
}

}  // namespace apus
