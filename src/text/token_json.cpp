// SPDX-License-Identifier: Apache-2.0
#include "text/token_json.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/json_scanner.h"
#include "text/unicode.h"

namespace apus {
namespace {
constexpr int kMaxNesting = 64;
}  // namespace

void JsonCursor::error(std::string_view why) const { fail(Fault::Model, name_, ": ", why, " at byte ", at_); }

char JsonCursor::peek() {
  while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonCursor::accept(char c) {
  if (peek() != c || at_ >= text_.size()) return false;
  ++at_;
  return true;
}

void JsonCursor::expect(char c) {
  if (!accept(c))
    error(at_ < text_.size() ? str("'", c, "' expected, '", text_[at_], "' found")
                             : str("'", c, "' expected, the text ends"));
}

std::string_view JsonCursor::string() {
  expect('"');
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  buffer_.assign(text_, begin, at_ - begin);
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\')
      unescape(buffer_);
    else
      buffer_ += text_[at_++];
  }
  expect('"');
  return buffer_;
}

uint32_t JsonCursor::hex4() {
  if (text_.size() - at_ < 4) error("the text ends inside \\u");
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = text_[at_];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) error("\\u needs four hexadecimal digits");
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

void JsonCursor::unescape(std::string& out) {
  static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  ++at_;
  if (at_ >= text_.size()) error("the text ends inside a string");
  const char c = text_[at_++];
  if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
    out += kTo[simple];
    return;
  }
  if (c != 'u') error("unknown escape in a string");
  uint32_t unit = hex4();
  if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) error("half of a surrogate pair");
    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  }
  if (unit >= 0xD800 && unit <= 0xDFFF) error("half of a surrogate pair");
  unicode::append(out, unit);
}

int64_t JsonCursor::integer() {
  const char first = peek();
  const bool negative = first == '-';
  if (negative) ++at_;
  int64_t value = 0;
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - begin < 18)
    value = value * 10 + (text_[at_++] - '0');
  if (at_ == begin ||
      (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.')))
    error("an integer is needed");
  return negative ? -value : value;
}

double JsonCursor::number() {
  peek();
  const size_t begin = at_;
  while (at_ < text_.size() && at_ - begin < 64 &&
         (std::isalnum(static_cast<unsigned char>(text_[at_])) || std::strchr("+-.", text_[at_])))
    ++at_;
  const std::string digits(text_.substr(begin, at_ - begin));  // strtod needs the end marked
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0' || !std::isfinite(value)) error("a number is needed");
  return value;
}

std::string_view JsonCursor::skip() {
  peek();
  const size_t begin = at_;
  std::string open;  // the brackets that are open
  do {
    const char c = peek();
    if (at_ >= text_.size()) error("the text ends inside a value");
    if (c == '"') {
      ++at_;
      while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
      if (at_ >= text_.size()) error("the text ends inside a string");
      ++at_;
    } else if (c == '{' || c == '[') {
      open += c == '{' ? '}' : ']';
      if (open.size() > kMaxNesting) error("nested too deeply");
      ++at_;
    } else if (c == '}' || c == ']') {
      if (open.empty() || open.back() != c) error("brackets do not match");
      open.pop_back();
      ++at_;
    } else if (c == ',' || c == ':') {
      if (open.empty()) error("a value is missing");
      ++at_;
    } else {
      const size_t word = at_;
      while (at_ < text_.size() && !is_blank(text_[at_]) && !std::strchr(",:]}[{\"", text_[at_])) ++at_;
      if (at_ == word) error("a value is needed");
    }
  } while (!open.empty());
  return text_.substr(begin, at_ - begin);
}

void JsonCursor::end() {
  peek();
  if (at_ != text_.size()) error("unexpected text after the value");
}

Json parse_json(std::string_view text, const std::string& name) {
  JsonCursor cursor(text, name);
  cursor.skip();  // bounds the nesting
  cursor.end();
  return parse_json(text, std::string_view(name), Fault::Model);
}

void JsonPart::error(const char* key, std::string_view why) const { fail(Fault::Model, where_, ".", key, ": ", why); }

bool JsonPart::has(const char* key) const {
  require(json_->is_object(), Fault::Model, where_, ": an object is needed, this is ", json_->type_name());
  const auto it = json_->find(key);
  return it != json_->end() && !it->is_null();
}

const Json& JsonPart::need(const char* key) const {
  if (!has(key)) error(key, "is missing");
  return *json_->find(key);
}

std::string JsonPart::text(const char* key) const {
  const Json& value = need(key);
  if (!value.is_string()) error(key, str("a string is needed, this is ", value.type_name()));
  return value.get<std::string>();
}

bool JsonPart::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = need(key);
  if (!value.is_boolean()) error(key, str("true or false is needed, this is ", value.type_name()));
  return value.get<bool>();
}

int64_t JsonPart::integer(const char* key, int64_t otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = need(key);
  if (!value.is_number_integer()) error(key, str("an integer is needed, this is ", value.type_name()));
  return value.get<int64_t>();
}

JsonPart JsonPart::part(const char* key) const { return JsonPart(need(key), where_ + "." + key); }

std::vector<JsonPart> JsonPart::list(const char* key) const {
  const Json& value = need(key);
  if (!value.is_array()) error(key, str("a list is needed, this is ", value.type_name()));
  std::vector<JsonPart> parts;
  for (size_t i = 0; i < value.size(); ++i) parts.emplace_back(value[i], str(where_, ".", key, "[", i, "]"));
  return parts;
}

}  // namespace apus
