// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <cctype>
#include <nlohmann/json.hpp>

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace apus {

namespace {

int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// "[json.exception.parse_error.101] parse error at line 1, column 5: ..." without the library's part
std::string reason(const std::exception& error) {
  const std::string_view what = error.what();
  const size_t bracket = what.find("] ");
  return std::string(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
}

bool word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '+';
}

// The text of one quoted string, from its opening quote at `i`; `i` ends behind the closing one.
std::string requoted(std::string_view text, size_t& i) {
  const char quote = text[i++];
  std::string out = "\"";
  for (; i < text.size() && text[i] != quote; ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (text[i + 1] != '\'') out += '\\';
      out += text[++i];
    } else if (text[i] == '"') {
      out += "\\\"";
    } else {
      out += text[i];
    }
  }
  ++i;
  return out + "\"";
}

std::string word_as_json(std::string_view word, bool is_key) {
  if (is_key) return "\"" + std::string(word) + "\"";
  if (word == "True" || word == "TRUE") return "true";
  if (word == "False" || word == "FALSE") return "false";
  if (word == "None" || word == "null" || word == "NULL") return "null";
  const bool plain = word == "true" || word == "false" || nlohmann::json::accept(word);
  return plain ? std::string(word) : "\"" + std::string(word) + "\"";
}

}  // namespace

namespace {
// Python writes the infinite number by a word that JSON does not have: the largest one stands in for it.
std::string with_largest(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kLargest = "1.7976931348623157e308";
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    const bool word = !quoted && text.substr(i, kWord.size()) == kWord;
    if (!word) {
      out += text[i];
      continue;
    }
    out += kLargest, i += kWord.size() - 1;
  }
  return out;
}
}  // namespace

Json parse_json(std::string_view text, std::string_view where, Fault fault, int max_depth) {
  require(depth_of(text) <= max_depth, fault, where, ": nested more than ", max_depth, " deep");
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    if (const std::string other = with_largest(text); other != text) return parse_json(other, where, fault, max_depth);
    fail(fault, where, ": not valid JSON: ", reason(error));
  }
}

std::string repaired_json(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      out += requoted(text, i);
    } else if (word_char(c)) {
      size_t end = i;
      while (end < text.size() && word_char(text[end])) ++end;
      size_t next = end;
      while (next < text.size() && std::isspace(static_cast<unsigned char>(text[next]))) ++next;
      out += word_as_json(text.substr(i, end - i), next < text.size() && text[next] == ':');
      i = end;
    } else if (c == ',') {
      size_t next = i + 1;
      while (next < text.size() && std::isspace(static_cast<unsigned char>(text[next]))) ++next;
      if (next < text.size() && text[next] != '}' && text[next] != ']') out += c;
      ++i;
    } else {
      out += c;
      ++i;
    }
  }
  return out;
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace apus
