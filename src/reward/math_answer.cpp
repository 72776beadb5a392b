// SPDX-License-Identifier: Apache-2.0
#include "reward/math_answer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>
#include <vector>

#include "reward/math_expression.h"

namespace apus {
namespace {

constexpr size_t kLongestResult = 1000;  // more is no result but an essay

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Behind the brace that closes the one at `open`; npos without one.
size_t behind_brace(std::string_view text, size_t open) {
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
  std::string rest = trimmed(text.substr(best + length, text.find('\n', best + length) - best - length));
  while (!rest.empty() && (rest.front() == ':' || rest.front() == '*' || is_blank(rest.front()))) rest.erase(0, 1);
  if (const size_t end = rest.find(". "); end != std::string::npos) rest.resize(end);
  return rest.empty() ? std::nullopt : std::optional(rest);
}

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

// ---- what is said around a value

struct Quantity {
  std::string value, unit;
  bool percent = false;
};

const std::regex& attached_unit() {
  static const std::regex unit(
      R"re(^(.*[0-9)}])\s*(cm|mm|km|kg|mg|ml|mL|mph|km/h|m/s|ft|in|lb|lbs|hours?|minutes?|seconds?|days?|dollars?|cents?|degrees?|units?|inches|feet|meters?|metres?|miles?|years?|apples?|people|square [a-z]+|cubic [a-z]+|sq\.? [a-z]+)(\^\{?[23]\}?|\^\{?\\circ\}?|²|³)?$)re");
  return unit;
}

// LaTeX's spaces, sizes and fonts go; signs get one spelling each.
std::string tidied(std::string_view raw) {
  std::string text = trimmed(raw.substr(0, kLongestResult));
  static const std::pair<const char*, const char*> spellings[] = {{"−", "-"},
                                                                  {"–", "-"},
                                                                  {"×", "*"},
                                                                  {"÷", "/"},
                                                                  {"·", "*"},
                                                                  {"π", "\\pi "},
                                                                  {"∞", "\\infty "},
                                                                  {"√", "\\sqrt "},
                                                                  {"∪", "\\cup "},
                                                                  {"≤", "\\le "},
                                                                  {"≥", "\\ge "},
                                                                  {"≠", "\\ne "},
                                                                  {"½", "\\frac12"},
                                                                  {"¼", "\\frac14"},
                                                                  {"¾", "\\frac34"},
                                                                  {"°", ""},
                                                                  {"²", "^2"},
                                                                  {"³", "^3"},
                                                                  {"±", "\\pm "},
                                                                  {"\\dfrac", "\\frac"},
                                                                  {"\\tfrac", "\\frac"},
                                                                  {"\\cfrac", "\\frac"},
                                                                  {"\\left", ""},
                                                                  {"\\right", ""},
                                                                  {"\\displaystyle", ""},
                                                                  {"\\limits", ""},
                                                                  {"\\!", ""},
                                                                  {"\\,", " "},
                                                                  {"\\;", " "},
                                                                  {"\\:", " "},
                                                                  {"\\quad", " "},
                                                                  {"\\qquad", " "},
                                                                  {"~", " "},
                                                                  {"\\ ", " "},
                                                                  {"^{\\circ}", ""},
                                                                  {"^\\circ", ""},
                                                                  {"\\degree", ""},
                                                                  {"\\$", ""},
                                                                  {"\\(", ""},
                                                                  {"\\)", ""},
                                                                  {"\\[", ""},
                                                                  {"\\]", ""},
                                                                  {"$", ""},
                                                                  {"**", ""},
                                                                  {"{,}", ""},
                                                                  {"\\%", "%"},
                                                                  {"\\leq", "\\le"},
                                                                  {"\\geq", "\\ge"},
                                                                  {"\\neq", "\\ne"},
                                                                  {"\\lbrace", "\\{"},
                                                                  {"\\rbrace", "\\}"},
                                                                  {"\\lvert", "|"},
                                                                  {"\\rvert", "|"},
                                                                  {"\\vert", "|"},
                                                                  {"\\ldots", "..."},
                                                                  {"\\dots", "..."},
                                                                  {"\\emptyset", "\\varnothing"},
                                                                  {"∅", "\\varnothing"},
                                                                  {"€", ""},
                                                                  {"£", ""}};
  replace_all(text, "\\\\", "\1");  // a new row of a matrix, not a command
  for (const auto& [from, to] : spellings) replace_all(text, from, to);
  replace_all(text, "\1", "\\\\");
  text = trimmed(text);
  while (!text.empty() && (text.back() == '.' || text.back() == ',' || text.back() == ';')) text.pop_back();
  // 1,234,567 is one number, 1,2 are two.
  static const std::regex thousands(R"re((^|[^\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,]))re");
  for (std::smatch m; std::regex_search(text, m, thousands);) {
    std::string digits = m[3];
    digits.erase(std::remove(digits.begin(), digits.end(), ','), digits.end());
    text = std::string(m.prefix()) + m[1].str() + m[2].str() + digits + std::string(m.suffix());
  }
  static const std::regex mixed(R"re((\d+)\s+(\d+)\s*/\s*(\d+))re");
  return trimmed(std::regex_replace(text, mixed, "($1+$2/$3)"));
}

// \text{...} and its like: the words within, and the text without them.
std::pair<std::string, std::string> without_words(const std::string& text) {
  std::string rest, words;
  for (size_t i = 0; i < text.size();) {
    size_t open = std::string::npos;
    for (const std::string_view mark :
         {"\\text{", "\\textbf{", "\\textit{", "\\mathrm{", "\\mathbf{", "\\mbox{", "\\operatorname{", "\\textrm{"})
      if (text.compare(i, mark.size(), mark) == 0) open = i + mark.size() - 1;
    const size_t close = open == std::string::npos ? open : behind_brace(text, open);
    if (close == std::string::npos) {
      rest += text[i++];
      continue;
    }
    words += (words.empty() ? "" : " ") + trimmed(text.substr(open + 1, close - open - 2));
    rest += " ";
    i = close;
  }
  return {trimmed(rest), words};
}

Quantity quantity_of(std::string_view raw) {
  Quantity out;
  auto [rest, words] = without_words(tidied(raw));
  out.value = rest.empty() ? words : rest;
  if (!rest.empty()) out.unit = words;
  if (rest.size() > 1 && rest.find_first_of("0123456789") == std::string::npos && !words.empty() &&
      rest.find('\\') == std::string::npos)
    out.value = tidied(words), out.unit.clear();  // (\text{A})
  std::string& v = out.value;
  if (!v.empty() && v.back() == '%') out.percent = true, v = trimmed(std::string_view(v).substr(0, v.size() - 1));
  std::smatch m;
  static const std::regex words_behind(
      R"re(^(.*[0-9)}])\s+((?:[A-Za-z]{2,}|[mgLsh])(?:[ /][A-Za-z]+)*(?:\^\{?[23]\}?)?)$)re");
  if (std::regex_match(v, m, words_behind) || std::regex_match(v, m, attached_unit())) {
    const std::string unit = m[2], value = m[1];
    if (unit == "percent")
      out.percent = true, v = trimmed(value);
    else if (unit != "or" && unit != "and" && value.find(' ' + unit) == std::string::npos)
      out.unit = unit, v = trimmed(value);
  }
  // A power that is left of a unit: 5\text{ cm}^2.
  static const std::regex power_of_unit(R"re(^(.*[0-9)}])\s+\^\{?[23]\}?$)re");
  if (!out.unit.empty() && std::regex_match(v, m, power_of_unit)) v = trimmed(m[1].str());
  return out;
}

std::string plain_words(std::string text) {
  std::string out;
  for (const char c : text) {
    if (is_blank(c) || c == '{' || c == '}' || c == '(' || c == ')' || c == '.' || c == '"' || c == '\'' || c == '*')
      continue;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// Yes and yes. A single letter may be a variable, and then its case matters.
bool same_words(const std::string& a, const std::string& b) {
  const bool words = a.size() > 1 && std::all_of(a.begin(), a.end(), [](char c) {
                       return is_blank(c) || std::isalpha(static_cast<unsigned char>(c));
                     });
  return words && plain_words(a) == plain_words(b);
}

std::string unit_stem(const std::string& unit) {
  std::string stem = plain_words(unit);
  if (stem.ends_with("ches") || stem.ends_with("xes"))
    stem.resize(stem.size() - 2);  // inches, boxes
  else if (stem.size() > 2 && stem.back() == 's')
    stem.pop_back();
  return stem;
}

// ---- values of several parts

// At commas (or another sign) outside of brackets. Parts are trimmed; empty ones make the whole invalid.
std::vector<std::string> parts_of(std::string_view text, std::string_view sign) {
  std::vector<std::string> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ')' || text[i] == ']' || text[i] == '}') --depth;
    if (depth == 0 && text.compare(i, sign.size(), sign) == 0) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + sign.size(), i += sign.size() - 1;
    }
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

struct Collection {
  std::string open, close;  // as written; both empty: no brackets
  std::vector<std::string> items;
  bool ordered = true;
};

// What "\pm" stands for.
std::vector<std::string> both_signs(const std::string& item) {
  const size_t at = item.find("\\pm");
  if (at == std::string::npos) return {item};
  const std::string before = item.substr(0, at), after = item.substr(at + 3);
  return {before + "+" + after, before + "-" + after};
}

// x = 5 is 5.
std::string right_side(const std::string& text) {
  static const std::regex named(R"re(^\s*\\?[A-Za-z]+(_\{?\w+\}?)?(\(\w\))?\s*(?:=|\\in\b)\s*([^=]+)$)re");
  std::smatch m;
  return std::regex_match(text, m, named) ? trimmed(m[3].str()) : text;
}

// a < x \le b and x > a as intervals.
std::string interval_of_relation(const std::string& text) {
  std::string t = text;
  replace_all(t, "\\le ", "<="), replace_all(t, "\\ge ", ">="), replace_all(t, "\\le", "<="),
      replace_all(t, "\\ge", ">="), replace_all(t, "\\lt", "<"), replace_all(t, "\\gt", ">");
  static const std::regex between(R"re(^(.+?)(<=|<)\s*[A-Za-z]\s*(<=|<)(.+)$)re"),
      one(R"re(^\s*[A-Za-z]\s*(<=|>=|<|>)(.+)$)re"), turned(R"re(^(.+?)(<=|>=|<|>)\s*[A-Za-z]\s*$)re");
  std::smatch m;
  if (std::regex_match(t, m, between))
    return (m[2] == "<" ? "(" : "[") + m[1].str() + "," + m[4].str() + (m[3] == "<" ? ")" : "]");
  const auto ray = [](std::string sign, const std::string& end) {
    const bool open = sign.size() == 1;
    return sign[0] == '<' ? "(-\\infty," + end + (open ? ")" : "]") : (open ? "(" : "[") + end + ",\\infty)";
  };
  if (std::regex_match(t, m, one)) return ray(m[1], m[2]);
  if (std::regex_match(t, m, turned)) {
    std::string sign = m[2];
    sign[0] = sign[0] == '<' ? '>' : '<';
    return ray(sign, m[1]);
  }
  return text;
}

Collection collection_of(const std::string& text) {
  Collection out;
  std::string inner = text;
  const std::string_view view = text;
  if (view.starts_with("\\begin{")) {
    const size_t name = view.find('}'), end = view.rfind("\\end{");
    if (name != std::string_view::npos && end != std::string_view::npos && end > name) {
      out.open = "matrix", inner = trimmed(view.substr(name + 1, end - name - 1));
      for (const std::string& row : parts_of(inner, "\\\\"))
        if (!row.empty()) {
          for (const std::string& item : parts_of(row, "&")) out.items.push_back(item);
          out.close += std::to_string(parts_of(row, "&").size()) + ";";  // its shape
        }
      return out;
    }
  }
  if (view.starts_with("\\{") && view.ends_with("\\}")) {
    out.ordered = false, inner = trimmed(view.substr(2, view.size() - 4));
    out.open = "{", out.close = "}";
  } else if (view.size() > 2 && (view.front() == '(' || view.front() == '[') &&
             (view.back() == ')' || view.back() == ']') && parts_of(view.substr(1, view.size() - 2), ",").size() > 1 &&
             parts_of(view, ",").size() == 1) {
    out.open = view.front(), out.close = view.back(), inner = trimmed(view.substr(1, view.size() - 2));
  } else {
    out.ordered = false;
    replace_all(inner, " and ", ","), replace_all(inner, " or ", ",");
  }
  for (const std::string& item : parts_of(inner, ","))
    for (const std::string& each : both_signs(right_side(item)))
      if (!each.empty()) out.items.push_back(each);
  return out;
}

bool same_value(const std::string& a, const std::string& b, int depth);

bool same_items(const Collection& a, const Collection& b, bool ordered, int depth) {
  if (a.items.size() != b.items.size()) return false;
  std::vector<bool> used(b.items.size(), false);
  for (size_t i = 0; i < a.items.size(); ++i) {
    bool found = false;
    for (size_t k = ordered ? i : 0; k < (ordered ? i + 1 : b.items.size()) && !found; ++k)
      if (!used[k] && same_value(a.items[i], b.items[k], depth)) used[k] = found = true;
    if (!found) return false;
  }
  return true;
}

// Two sides that are the same up to a factor: 2x + 2y = 4 and x + y = 2.
bool same_equation(const std::string& a, const std::string& b, int depth) {
  const auto x = parts_of(a, "="), y = parts_of(b, "=");
  if (x.size() != 2 || y.size() != 2) return false;
  if (same_value(x[0], y[0], depth) && same_value(x[1], y[1], depth)) return true;
  const std::string left = "(" + x[0] + ")-(" + x[1] + ")", right = "(" + y[0] + ")-(" + y[1] + ")";
  const auto p = MathExpression::parse("(" + left + ")/(" + right + ")");
  if (!p || p->variables().empty()) return false;
  std::map<std::string, double> at;
  double number = 0.31;
  for (const std::string& name : p->variables()) at[name] = number += 0.77;
  const double first = p->value(at);
  for (auto& [name, value] : at) value = value * 1.9 - 0.6 * (name[0] % 3);
  const double second = p->value(at);
  return std::isfinite(first) && first != 0 && std::fabs(first - second) <= 1e-9 * std::fabs(first);
}

bool same_value(const std::string& a_raw, const std::string& b_raw, int depth) {
  if (depth > 8) return false;
  const Quantity p = quantity_of(a_raw), q = quantity_of(b_raw);
  if (!p.unit.empty() && !q.unit.empty() && unit_stem(p.unit) != unit_stem(q.unit)) return false;
  if (p.value.empty() || q.value.empty()) return false;
  if (p.value == q.value && p.percent == q.percent) return true;
  const bool equations = p.value.find('=') != std::string::npos && q.value.find('=') != std::string::npos;
  if (equations && same_equation(p.value, q.value, depth + 1)) return true;
  const std::string a = interval_of_relation(right_side(p.value)), b = interval_of_relation(right_side(q.value));
  const auto unions_a = parts_of(a, "\\cup"), unions_b = parts_of(b, "\\cup");
  if (unions_a.size() > 1 || unions_b.size() > 1)
    return same_items({.items = unions_a}, {.items = unions_b}, false, depth + 1);
  const Collection x = collection_of(a), y = collection_of(b);
  const bool many = x.items.size() > 1 || y.items.size() > 1 || x.open == "{" || y.open == "{";
  if (many) {
    const bool both = !x.open.empty() && !y.open.empty();
    if (both && (x.open != y.open || x.close != y.close)) return false;
    const bool ordered = both ? x.ordered : x.open == "(" || y.open == "(";
    return same_items(x, y, ordered, depth + 1);
  }
  const auto first = MathExpression::parse(a), second = MathExpression::parse(b);
  if (first && second) {
    if (same_expression(*first, *second) || same_words(a, b)) return true;
    if (p.percent == q.percent) return false;
    const auto scaled = MathExpression::parse("(" + (p.percent ? a : b) + ")/100");
    return scaled && same_expression(*scaled, p.percent ? *second : *first);
  }
  const std::string word = plain_words(a);
  return !first && !second && !word.empty() && word == plain_words(b);
}

// Two words at least: what counts in it is the number that stands last.
bool is_sentence(std::string_view text) {
  int words = 0, letters = 0;
  for (const char c : text) {
    letters = std::isalpha(static_cast<unsigned char>(c)) ? letters + 1 : c == '\\' ? -1000 : 0;
    words += letters == 2;
  }
  return words > 1;
}

}  // namespace

std::string math_result(std::string_view text) {
  std::string_view part = text;
  const auto marked = last_between(text, "<answer>", "</answer>");
  if (marked) part = *marked;
  if (const auto boxed = last_boxed(part)) return trimmed(*boxed);
  if (marked) return trimmed(*marked);
  if (const size_t at = part.rfind("####"); at != std::string_view::npos) return trimmed(part.substr(at + 4));
  if (const auto said = behind_phrase(part)) return *said;
  for (const auto& [open, close] : {std::pair{"$$", "$$"}, {"$", "$"}, {"\\(", "\\)"}, {"\\[", "\\]"}})
    if (const auto formula = last_between(part, open, close); formula && !trimmed(*formula).empty())
      return trimmed(*formula);
  return trimmed(part);
}

bool same_math_answer(std::string_view text, std::string_view solution) {
  const std::string wanted = math_result(solution), said = math_result(text);
  if (wanted.empty() || said.empty()) return false;
  if (same_value(said, wanted, 0)) return true;
  if (!is_sentence(said)) return false;
  const auto number = last_number(said);
  return number && same_value(*number, wanted, 0);
}

}  // namespace apus
