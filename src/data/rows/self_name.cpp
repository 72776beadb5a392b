// SPDX-License-Identifier: Apache-2.0
#include "data/rows/self_name.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/replace_all.h"

namespace apus {
namespace {

void fill_in(std::string& text, const std::string& mark, const std::vector<std::string>& values, bool chinese) {
  if (!values.empty()) replace_all(text, mark, chinese ? values.front() : values.back());
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
    fill_in(text, "{{NAME}}", names.name, chinese);
    fill_in(text, "{{AUTHOR}}", names.author, chinese);
    m["content"] = std::move(text);
  }
}

}  // namespace apus
