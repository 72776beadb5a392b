// SPDX-License-Identifier: Apache-2.0
#include "serve/plain_specials.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace apus {

namespace {
constexpr std::string_view kMark = "\xF4\x8F\xBF\xBF";  // U+10FFFF, which is no character
}  // namespace

PlainSpecials::PlainSpecials(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.has(id) && tokenizer.is_special(id))
      if (std::string text = tokenizer.piece(id); text.size() > 1) specials_.push_back(std::move(text));
  std::sort(specials_.begin(), specials_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::pair<size_t, size_t> PlainSpecials::next_special(const std::string& text, size_t from) const {
  size_t at = std::string::npos, length = 0;
  for (const auto& special : specials_)
    if (const size_t found = text.find(special, from); found < at) at = found, length = special.size();
  return {at, length};
}

bool PlainSpecials::has_marks(const std::string& text) { return text.find(kMark) != std::string::npos; }

std::string PlainSpecials::unmarked(std::string text) {
  for (size_t at = 0; (at = text.find(kMark, at)) != std::string::npos;) text.erase(at, kMark.size());
  return text;
}

void PlainSpecials::mark(Json& value) const {
  if (!value.is_string()) return;
  std::string text = unmarked(value.get<std::string>());
  for (size_t from = 0;;) {
    const auto [at, length] = next_special(text, from);
    if (at == std::string::npos) break;
    size_t one = at + 1;  // behind its first character
    while (one < text.size() && (text[one] & 0xC0) == 0x80) ++one;
    text.insert(one, kMark);
    from = one + kMark.size();
  }
  value = std::move(text);
}

Json PlainSpecials::marked(Json messages) const {
  for (Json& m : messages) {
    for (const char* key : {"content", "reasoning_content", "name"})
      if (m.contains(key)) mark(m[key]);
    if (!m.contains("tool_calls")) continue;
    for (Json& call : m["tool_calls"])
      for (auto& entry : call["function"].items()) {
        mark(entry.value());
        if (entry.value().is_object())
          for (auto& argument : entry.value().items()) mark(argument.value());
      }
  }
  return messages;
}

std::vector<int32_t> PlainSpecials::encode(const std::string& rendered) const {
  std::vector<int32_t> ids;
  const auto add = [&](const std::string& part, bool plain) {
    const auto more = tokenizer_.encode(part, false, plain);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  std::string as_it_is;  // joined as far as possible: cuts would change how words are cut
  for (size_t from = 0; from < rendered.size();) {
    const auto [at, length] = next_special(rendered, from);
    const std::string between = rendered.substr(from, at - from);
    if (has_marks(between)) {
      add(as_it_is, false);
      as_it_is.clear();
      add(unmarked(between), true);
    } else {
      as_it_is += between;
    }
    if (at == std::string::npos) break;
    as_it_is += rendered.substr(at, length);
    from = at + length;
  }
  add(as_it_is, false);
  return ids;
}

}  // namespace apus
