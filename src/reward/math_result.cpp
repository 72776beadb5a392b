// SPDX-License-Identifier: Apache-2.0
// Where the result stands in a text.
#include <algorithm>
#include <cctype>
#include <regex>

#include "reward/math_answer.h"
#include "reward/math_text.h"

namespace apus {
namespace {

// What the last \boxed{...} holds.
std::optional<std::string> last_boxed(std::string_view text) {
  for (size_t end = text.size(); end > 0;) {
    size_t at = text.rfind("\\boxed", end - 1), after = at + 6;
    if (const size_t fbox = text.rfind("\\fbox", end - 1);
        fbox != std::string_view::npos && (at == std::string_view::npos || fbox > at))
      at = fbox, after = at + 5;
    if (at == std::string_view::npos) return std::nullopt;
    while (after < text.size() && text[after] == ' ') ++after;
    if (after < text.size() && text[after] == '{') {
      const size_t close = behind_brace(text, after);
      if (close != std::string_view::npos) return std::string(text.substr(after + 1, close - after - 2));
    } else if (after > at + 5 && after < text.size()) {
      return std::string(text.substr(after, text.find_first_of(" $\n", after) - after));  // \boxed 5
    }
    end = at;
  }
  return std::nullopt;
}

std::optional<std::string> last_between(std::string_view text, std::string_view open, std::string_view close) {
  const size_t end = text.rfind(close);
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  const size_t begin = text.rfind(open, end - 1);
  if (begin == std::string_view::npos || begin + open.size() > end) return std::nullopt;
  return std::string(text.substr(begin + open.size(), end - begin - open.size()));
}

// The rest of the line behind the last of some phrases.
std::optional<std::string> behind_phrase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  size_t best = std::string::npos, length = 0;
  for (const std::string_view phrase : {"answer is", "answer:", "answer =", "result is", "answer: **"})
    if (const size_t at = lower.rfind(phrase);
        at != std::string::npos && (best == std::string::npos || at > best || (at == best && phrase.size() > length)))
      best = at, length = phrase.size();
  if (best == std::string::npos) return std::nullopt;
  std::string rest = trimmed_math(text.substr(best + length, text.find('\n', best + length) - best - length));
  while (!rest.empty() && (rest.front() == ':' || rest.front() == '*' || is_blank(rest.front()))) rest.erase(0, 1);
  if (const size_t end = rest.find(". "); end != std::string::npos) rest.resize(end);
  return rest.empty() ? std::nullopt : std::optional(rest);
}

// What stands behind a thought. One that is never closed has no result behind it; where the chat template opened it,
// only its end is there.
std::string_view behind_thought(std::string_view text) {
  const size_t open = text.rfind("<think>"), close = text.rfind("</think>");
  if (open != std::string_view::npos && (close == std::string_view::npos || close < open)) return text.substr(0, open);
  return close == std::string_view::npos ? text : text.substr(close + std::string_view("</think>").size());
}

}  // namespace

std::optional<std::string> last_number(std::string_view text) {
  const auto in_number = [&](size_t i) {
    const char c = text[i];
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool between = (c == ',' || c == '.' || c == '/') && i + 1 < text.size() && i > 0 &&
                         std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1]));
    return digit || between;
  };
  size_t end = text.size();
  while (end > 0 && !in_number(end - 1)) --end;
  size_t begin = end;
  while (begin > 0 && in_number(begin - 1)) --begin;
  if (begin == end) return std::nullopt;
  if (begin > 0 && text[begin - 1] == '.') --begin;
  const size_t dollar = begin > 0 && text[begin - 1] == '$' ? 1 : 0;
  if (begin > dollar && text[begin - dollar - 1] == '-') begin -= dollar + 1;
  if (end < text.size() && text[end] == '%') ++end;
  return std::string(text.substr(begin, end - begin));
}

bool is_sentence(std::string_view text) {
  int words = 0, letters = 0;
  for (const char c : text) {
    letters = std::isalpha(static_cast<unsigned char>(c)) ? letters + 1 : c == '\\' ? -1000 : 0;
    words += letters == 2;
  }
  return words > 1;
}

std::string without_denials(std::string_view text) {
  static const std::regex denial(R"re((,?\s*(but|and))?[ ,]+(not|rather than|instead of)\s+[^,.;]*)re");
  std::string out = std::regex_replace(std::string(text), denial, "");
  return trimmed_math(out).empty() ? std::string(text) : out;
}

std::string math_result(std::string_view text) {
  std::string_view part = behind_thought(text);
  const auto marked = last_between(text, "<answer>", "</answer>");
  if (marked) part = *marked;
  if (const auto boxed = last_boxed(part)) return trimmed_math(*boxed);
  if (marked) return trimmed_math(*marked);
  if (const size_t at = part.rfind("####"); at != std::string_view::npos) return trimmed_math(part.substr(at + 4));
  if (const auto said = behind_phrase(part)) return *said;
  for (const auto& [open, close] : {std::pair{"$$", "$$"}, {"$", "$"}, {"\\(", "\\)"}, {"\\[", "\\]"}})
    if (const auto formula = last_between(part, open, close); formula && !trimmed_math(*formula).empty())
      return trimmed_math(*formula);
  return trimmed_math(part);
}

}  // namespace apus
