// SPDX-License-Identifier: Apache-2.0
// Small things about mathematical texts, for the files that read them (math_result.cpp, math_answer.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace apus {

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline std::string trimmed_math(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// Behind the brace that closes the one at `open`; npos without one.
inline size_t behind_brace(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

// The number that stands last in a text.
std::optional<std::string> last_number(std::string_view text);
// Two words at least: what counts in it is the number that stands last.
bool is_sentence(std::string_view text);
// Without a clause that says what the answer is not: "42, not 41" is 42.
std::string without_denials(std::string_view text);

}  // namespace apus
