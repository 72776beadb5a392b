// SPDX-License-Identifier: Apache-2.0
#include "reward/math_answer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <regex>
#include <vector>

#include "reward/math_expression.h"
#include "reward/math_text.h"

namespace apus {
namespace {

constexpr size_t kLongestResult = 1000;  // more is no result but an essay

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
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
  std::string text = trimmed_math(raw.substr(0, kLongestResult));
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
                                                                  {"°", "\\degree "},
                                                                  {"⌊", "\\lfloor "},
                                                                  {"⌋", "\\rfloor "},
                                                                  {"⌈", "\\lceil "},
                                                                  {"⌉", "\\rceil "},
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
                                                                  {"^{\\circ}", "\\degree "},
                                                                  {"^\\circ", "\\degree "},
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
  text = trimmed_math(text);
  if (text == "\\{\\}" || text == "\\{ \\}") return "\\varnothing";
  while (!text.empty() && (text.back() == '.' || text.back() == ',' || text.back() == ';')) text.pop_back();
  // 1,234,567 is one number, 1,2 are two.
  static const std::regex thousands(R"re((^|[^\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,]))re");
  for (std::smatch m; std::regex_search(text, m, thousands);) {
    std::string digits = m[3];
    digits.erase(std::remove(digits.begin(), digits.end(), ','), digits.end());
    text = std::string(m.prefix()) + m[1].str() + m[2].str() + digits + std::string(m.suffix());
  }
  static const std::regex mixed(R"re((\d+)\s+(\d+)\s*/\s*(\d+))re");
  return trimmed_math(std::regex_replace(text, mixed, "($1+$2/$3)"));
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
    const std::string word = trimmed_math(text.substr(open + 1, close - open - 2));
    i = close;
    if (word == "or" || word == "and") {  // between two values
      rest += " " + word + " ";
      continue;
    }
    words += (words.empty() ? "" : " ") + word;
    rest += " ";
  }
  return {trimmed_math(rest), words};
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
  if (!v.empty() && v.back() == '%') out.percent = true, v = trimmed_math(std::string_view(v).substr(0, v.size() - 1));
  std::smatch m;
  static const std::regex words_behind(
      R"re(^(.*[0-9)}])\s+((?:[A-Za-z]{2,}|[mgLsh])(?:[ /][A-Za-z]+)*(?:\^\{?[23]\}?)?)$)re");
  if (std::regex_match(v, m, words_behind) || std::regex_match(v, m, attached_unit())) {
    const std::string unit = m[2], value = m[1];
    if (unit == "percent")
      out.percent = true, v = trimmed_math(value);
    else if (unit != "or" && unit != "and" && value.find(' ' + unit) == std::string::npos)
      out.unit = unit, v = trimmed_math(value);
  }
  // A power that is left of a unit: 5\text{ cm}^2.
  static const std::regex power_of_unit(R"re(^(.*[0-9)}])\s+\^\{?[23]\}?$)re");
  if (!out.unit.empty() && std::regex_match(v, m, power_of_unit)) v = trimmed_math(m[1].str());
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

// 3 hours 20 minutes: amounts of several units, one behind the other; empty where it is none.
using Amounts = std::vector<std::pair<double, std::string>>;

Amounts amounts_of(std::string_view raw) {
  if (raw.size() > 200) return {};
  std::string text = tidied(raw);
  for (const char* mark : {"\\text{", "\\mathrm{", "\\textrm{", "}"}) replace_all(text, mark, " ");
  static const std::regex whole(
      R"re(^\s*\d+(\.\d+)?\s*[A-Za-z]+((\s+and\s+|\s*,\s*|\s+)\d+(\.\d+)?\s*[A-Za-z]+)*\s*$)re"),
      one(R"re((\d+(?:\.\d+)?)\s*([A-Za-z]+))re");
  if (!std::regex_match(text, whole)) return {};
  Amounts out;
  for (auto m = std::sregex_iterator(text.begin(), text.end(), one); m != std::sregex_iterator(); ++m)
    out.emplace_back(std::strtod((*m)[1].str().c_str(), nullptr), unit_stem((*m)[2]));
  return out;
}

// The unit that a unit is counted in, and how many of it there are.
std::pair<std::string, double> counted_in(const std::string& unit) {
  static const std::map<std::string, std::pair<std::string, double>> known = {
      {"second", {"second", 1}},    {"sec", {"second", 1}},   {"minute", {"second", 60}}, {"min", {"second", 60}},
      {"hour", {"second", 3600}},   {"hr", {"second", 3600}}, {"h", {"second", 3600}},    {"day", {"second", 86400}},
      {"week", {"second", 604800}}, {"inch", {"inch", 1}},    {"in", {"inch", 1}},        {"foot", {"inch", 12}},
      {"feet", {"inch", 12}},       {"ft", {"inch", 12}},     {"yard", {"inch", 36}}};
  const auto found = known.find(unit);
  return found == known.end() ? std::pair(unit, 1.0) : found->second;
}

bool same_amounts(const Amounts& a, const Amounts& b) {
  std::map<std::string, double> sums[2];
  for (const auto& [amount, unit] : a) sums[0][counted_in(unit).first] += amount * counted_in(unit).second;
  for (const auto& [amount, unit] : b) sums[1][counted_in(unit).first] += amount * counted_in(unit).second;
  return std::equal(sums[0].begin(), sums[0].end(), sums[1].begin(), sums[1].end(), [](const auto& x, const auto& y) {
    return x.first == y.first && std::fabs(x.second - y.second) <= 1e-9 * std::fabs(y.second);
  });
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
      parts.push_back(trimmed_math(text.substr(begin, i - begin)));
      begin = i + sign.size(), i += sign.size() - 1;
    }
  }
  parts.push_back(trimmed_math(text.substr(begin)));
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
  static const std::regex point(R"re(^\s*\([A-Za-z](?:\s*,\s*[A-Za-z])+\)\s*=\s*(\(.+\))$)re");  // (x,y) = (1,2)
  std::smatch m;
  if (std::regex_match(text, m, point)) return trimmed_math(m[1].str());
  return std::regex_match(text, m, named) ? trimmed_math(m[3].str()) : text;
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
      out.open = "matrix", inner = trimmed_math(view.substr(name + 1, end - name - 1));
      for (const std::string& row : parts_of(inner, "\\\\"))
        if (!row.empty()) {
          for (const std::string& item : parts_of(row, "&")) out.items.push_back(item);
          out.close += std::to_string(parts_of(row, "&").size()) + ";";  // its shape
        }
      return out;
    }
  }
  if (view.starts_with("\\{") && view.ends_with("\\}")) {
    out.ordered = false, inner = trimmed_math(view.substr(2, view.size() - 4));
    out.open = "{", out.close = "}";
  } else if (view.size() > 2 && (view.front() == '(' || view.front() == '[') &&
             (view.back() == ')' || view.back() == ']') && parts_of(view.substr(1, view.size() - 2), ",").size() > 1 &&
             parts_of(view, ",").size() == 1) {
    out.open = view.front(), out.close = view.back(), inner = trimmed_math(view.substr(1, view.size() - 2));
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
  const std::complex<double> first = p->value(at);
  for (auto& [name, value] : at) value = value * 1.9 - 0.6 * (name[0] % 3);
  const std::complex<double> second = p->value(at);
  return std::isfinite(std::abs(first)) && first != 0.0 && std::abs(first - second) <= 1e-9 * std::abs(first);
}

// 4:6 and 2:3, and 2/3.
bool same_ratio(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto same = [](const std::string& x, const std::string& y) {
    const auto p = MathExpression::parse(x), q = MathExpression::parse(y);
    return p && q && same_expression(*p, *q);
  };
  if (a.size() == 1 || b.size() == 1) {
    const auto &ratio = a.size() == 1 ? b : a, &value = a.size() == 1 ? a : b;
    return ratio.size() == 2 && same("(" + ratio[0] + ")/(" + ratio[1] + ")", value[0]);
  }
  if (a.size() != b.size()) return false;
  for (size_t i = 1; i < a.size(); ++i)
    if (!same("(" + a[i] + ")*(" + b[0] + ")", "(" + b[i] + ")*(" + a[0] + ")")) return false;
  return true;
}

bool same_value(const std::string& a_raw, const std::string& b_raw, int depth) {
  if (depth > 8) return false;
  const Amounts several = amounts_of(a_raw), others = amounts_of(b_raw);
  if (!several.empty() && !others.empty() && several.size() + others.size() > 2) return same_amounts(several, others);
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
  if (const auto ratio = parts_of(a, ":"), other = parts_of(b, ":"); ratio.size() > 1 || other.size() > 1)
    if (same_ratio(ratio, other)) return true;
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

}  // namespace

bool same_math_answer(std::string_view text, std::string_view solution) {
  const std::string wanted = math_result(solution);
  std::string said = math_result(text);
  if (said.size() <= kLongestResult) said = without_denials(said);
  if (wanted.empty() || said.empty()) return false;
  if (same_value(said, wanted, 0)) return true;
  if (!is_sentence(said)) return false;
  const auto number = last_number(said);
  return number && same_value(*number, wanted, 0);
}

}  // namespace apus
