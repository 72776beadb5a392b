// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_map>

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

// Builds the tree. The library's own builder looks through all keys of an object at each new one, which takes minutes
// for a vocabulary, or for a request that means harm.
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  Json tree;
  std::string wrong;  // what the library says of a text that is no JSON

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }
  // A key that comes again takes the place of the first.
  bool key(string_t& name) override {
    Open& object = open_.back();
    auto& members = object.value->get_ref<Json::object_t&>();
    object.next = members.size();
    if (members.size() < kFew) {
      const auto known = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == name; });
      object.next = static_cast<size_t>(known - members.begin());
    } else {
      for (size_t i = object.place.size(); i < members.size(); ++i) object.place.emplace(members.data()[i].first, i);
      if (const auto known = object.place.find(name); known != object.place.end()) object.next = known->second;
    }
    if (object.next == members.size()) members.emplace_back(std::move(name), Json());
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    wrong = reason(error);
    return false;
  }

 private:
  static constexpr size_t kFew = 32;
  struct Open {
    Json* value;
    std::unordered_map<std::string, size_t> place = {};  // of an object's keys, where they are not few
    size_t next = 0;
  };
  Json& slot() {
    if (open_.empty()) return tree;
    Open& in = open_.back();
    if (in.value->is_array()) return in.value->get_ref<Json::array_t&>().emplace_back();
    return (in.value->get_ref<Json::object_t&>().begin() + static_cast<std::ptrdiff_t>(in.next))->second;
  }
  template <class T>
  bool put(T&& value) {
    slot() = std::forward<T>(value);
    return true;
  }
  bool open(Json value) {
    Json& at = slot();
    at = std::move(value);
    open_.push_back({&at});
    return true;
  }

  std::vector<Open> open_;
};
}  // namespace

Json parse_json(std::string_view text, std::string_view where, Fault fault, int max_depth) {
  require(depth_of(text) <= max_depth, fault, where, ": nested more than ", max_depth, " deep");
  TreeBuilder builder;
  if (Json::sax_parse(text, &builder)) return std::move(builder.tree);
  if (const std::string other = with_largest(text); other != text) return parse_json(other, where, fault, max_depth);
  fail(fault, where, ": not valid JSON: ", builder.wrong);
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
