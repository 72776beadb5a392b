// SPDX-License-Identifier: Apache-2.0
#include "base/option_value.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/files.h"
#include "base/foreign_words.h"
#include "base/nearest.h"

namespace apus {

namespace {

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string quoted(const std::string& word) {
  return "'" + (word.size() > 80 ? word.substr(0, 77) + "..." : word) + "'";
}

bool says_none(const std::string& word) {
  const std::string small = word.size() <= 4 ? lower(word) : "";
  return small == "none" || small == "null";
}

std::string read(const std::string& word, bool& value) {
  const std::string small = word.size() <= 5 ? lower(word) : "";
  for (const char* yes : {"true", "yes", "on", "t", "y", "1"}) {
    if (small == yes) return value = true, "";
  }
  for (const char* no : {"false", "no", "off", "f", "n", "0"}) {
    if (small == no) return value = false, "";
  }
  return quoted(word) + " is neither true nor false";
}

std::string read(const std::string& word, int64_t& value) {
  const char* first = word.data() + (word.starts_with("+") && word.size() > 1 ? 1 : 0);
  const char* last = word.data() + word.size();
  int64_t whole = 0;
  const auto [end, code] = std::from_chars(first, last, whole);
  if (code == std::errc::result_out_of_range && end == last) return quoted(word) + " is beyond 64 bits";
  if (code != std::errc() || end != last || first == last) return quoted(word) + " is not a whole number";
  value = whole;
  return "";
}

std::string read(const std::string& word, double& value) {
  const char* first = word.data() + (word.starts_with("+") && word.size() > 1 ? 1 : 0);
  const char* last = word.data() + word.size();
  double real = 0;
  const auto [end, code] = std::from_chars(first, last, real);
  if (code != std::errc() || end != last || first == last || !std::isfinite(real))
    return quoted(word) + " is not a number";
  value = real;
  return "";
}

std::string read(const std::string& word, std::string& value) { return value = word, ""; }

template <class T>
std::string read(const std::string& word, std::optional<T>& value) {
  if constexpr (!std::is_same_v<T, std::string>) {
    if (says_none(word)) return value.reset(), "";
  }
  T inner{};
  std::string wrong = read(word, inner);
  if (wrong.empty()) value = std::move(inner);
  return wrong;
}

// What is wrong with JSON that was typed, and where in it. Nothing for what is right.
std::string json_fault(const std::string& word) {
  try {
    const Json right = Json::parse(word);
    return "";
  } catch (const Json::parse_error& error) {
    const std::string what = error.what();
    const size_t dash = what.find(" - ");
    const std::string why = dash == std::string::npos ? what : what.substr(dash + 3);
    const size_t place = error.byte > 0 ? error.byte - 1 : 0, begin = place > 30 ? place - 30 : 0;
    return place >= word.size() ? str(quoted(word), " is no JSON: ", why)
                                : str("no JSON: at character ", place + 1, ", behind ",
                                      quoted(word.substr(begin, place - begin)), ": ", why);
  }
}

// JSON text, or the path of a JSON file. Near misses (single quotes, Python's words) are read as what they mean.
std::string read(const std::string& word, Json& value) {
  const size_t start = word.find_first_not_of(" \t\r\n");
  try {
    if (start == std::string::npos || (word[start] != '{' && word[start] != '[')) {
      std::error_code code;
      if (!std::filesystem::is_regular_file(word, code))
        return quoted(word) + " is neither JSON text nor a JSON file that exists";
      value = parse_json(read_file(word, 64 << 20), word, Fault::Usage);
      return "";
    }
    try {
      value = parse_json(word, "the text", Fault::Usage);
    } catch (const Error& first) {
      try {
        value = parse_json(repaired_json(word), "the text", Fault::Usage);
      } catch (const Error&) {  // told of the text that was typed
        const std::string what = first.what();
        return what.find("not valid JSON") == std::string::npos ? what : json_fault(word);
      }
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// A list may also be one JSON array: '["a", "b"]'.
std::vector<std::string> spread(const std::vector<std::string>& words) {
  if (words.size() != 1 || !words[0].starts_with("[") || !words[0].ends_with("]")) return words;
  try {
    std::vector<std::string> items;
    for (const auto& item : parse_json(words[0], "", Fault::Usage))
      items.push_back(item.is_string() ? item.get<std::string>() : json_text(item));
    return items;
  } catch (const Error&) {
    return words;
  }
}

template <class T>
std::string read_list(const std::vector<std::string>& words, std::vector<T>& values) {
  std::vector<T> items;
  for (const auto& word : spread(words)) {
    std::string wrong = read(word, items.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  values = std::move(items);
  return "";
}

std::string check_choice(const Option& option, const std::string& word) {
  if (option.allowed.empty()) return "";
  for (const auto& choice : option.allowed) {
    if (choice == word) return "";
  }
  if (const std::string use = option_of_foreign_value(option.name, word); !use.empty())
    return str(quoted(word), " is not possible; here it is ", use);
  const auto near = nearest(word, option.allowed, 1);
  return str(quoted(word), " is not possible",
             near.empty() ? ". Allowed: " : str("; did you mean ", near[0], "? Allowed: "), join(option.allowed));
}

std::string check_limits(const Option& option, double value) {
  if (option.above_limit && !(value > *option.above_limit)) return str(value, " must be above ", *option.above_limit);
  if (option.least && value < *option.least) return str(value, " must be at least ", *option.least);
  if (option.most && value > *option.most) return str(value, " must be at most ", *option.most);
  return "";
}

std::string check_value(const Option& option) {
  std::string wrong;
  const auto text = [&](const std::string& value) {
    if (wrong.empty()) wrong = check_choice(option, value);
  };
  const auto number = [&](double value) {
    if (wrong.empty()) wrong = check_limits(option, value);
  };
  std::visit(Cases{[&](int64_t* v) { number(static_cast<double>(*v)); }, [&](double* v) { number(*v); },
                   [&](std::string* v) { text(*v); },
                   [&](std::vector<std::string>* v) {
                     for (const auto& item : *v) text(item);
                   },
                   [&](std::vector<double>* v) {
                     for (const double item : *v) number(item);
                   },
                   [&](std::optional<int64_t>* v) {
                     if (*v) number(static_cast<double>(**v));
                   },
                   [&](std::optional<double>* v) {
                     if (*v) number(**v);
                   },
                   [&](std::optional<std::string>* v) {
                     if (*v) text(**v);
                   },
                   [](auto) {}},
             option.target);
  return wrong;
}

}  // namespace

Arity arity(const Option& option) {
  return std::visit(
      Cases{[](std::monostate) { return Arity::Any; }, [](bool*) { return Arity::Flag; },
            [](std::optional<bool>*) { return Arity::Flag; }, [](std::vector<std::string>*) { return Arity::Many; },
            [](std::vector<double>*) { return Arity::Many; }, [](auto) { return Arity::One; }},
      option.target);
}

std::string assign_words(Option& option, const std::vector<std::string>& words) {
  const std::string wrong = std::visit(Cases{[](std::monostate) { return std::string(); },
                                             [&](std::vector<std::string>* v) { return read_list(words, *v); },
                                             [&](std::vector<double>* v) { return read_list(words, *v); },
                                             [&](auto* v) {
                                               if (words.size() != 1)
                                                 return str("one value is needed, ", words.size(), " are given");
                                               return read(words[0], *v);
                                             }},
                                       option.target);
  return wrong.empty() ? check_value(option) : wrong;
}

std::string assign_json(Option& option, const Json& value) {
  // A default stands outside of its own limits: "", none of the choices.
  if (value == value_json(option)) return "";
  if (auto* const* json = std::get_if<Json*>(&option.target); json && !value.is_string()) {
    **json = value;
    return "";
  }
  const auto word = [](const Json& item) { return item.is_string() ? item.get<std::string>() : json_text(item); };
  if (value.is_null()) return "";
  std::vector<std::string> words;
  if (value.is_array() && arity(option) == Arity::Many) {
    for (const auto& item : value) words.push_back(word(item));
  } else {
    words.push_back(word(value));
  }
  return assign_words(option, words);
}

Json value_json(const Option& option) {
  return std::visit(
      Cases{[](std::monostate) { return Json(); }, [](std::optional<bool>* v) { return *v ? Json(**v) : Json(); },
            [](std::optional<int64_t>* v) { return *v ? Json(**v) : Json(); },
            [](std::optional<double>* v) { return *v ? Json(**v) : Json(); },
            [](std::optional<std::string>* v) { return *v ? Json(**v) : Json(); }, [](auto* v) { return Json(*v); }},
      option.target);
}

std::string type_text(const Option& option) {
  return std::visit(
      Cases{[](std::monostate) { return ""; }, [](bool*) { return "true|false"; },
            [](std::optional<bool>*) { return "true|false"; }, [](int64_t*) { return "N"; },
            [](std::optional<int64_t>*) { return "N"; }, [](double*) { return "X"; },
            [](std::optional<double>*) { return "X"; }, [](std::vector<std::string>*) { return "TEXT ..."; },
            [](std::vector<double>*) { return "X ..."; }, [](Json*) { return "JSON"; }, [](auto*) { return "TEXT"; }},
      option.target);
}

bool acts(const Option& option) { return option.refusal.empty() && option.no_effect.empty(); }

std::string default_text(const Option& option) {
  if (!option.default_text.empty()) return option.default_text;
  const Json value = value_json(option);
  if (value.is_null() || ((value.is_array() || value.is_object()) && value.empty())) return "";
  if (value.is_array()) {  // as one would type it
    std::vector<std::string> words;
    for (const Json& item : value) words.push_back(item.is_string() ? item.get<std::string>() : json_text(item));
    return join(words, " ");
  }
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

}  // namespace apus
