// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json: a fast pass over the raw text for the large tables, ordinary JSON for the small parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace apus {

// A place in a JSON text. Every error names the file and the byte.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  char peek();  // the next character that is not white space; 0 at the end
  bool accept(char c);
  void expect(char c);
  // A string; the view is into the text itself or into an internal buffer that the next call overwrites.
  std::string_view string();
  int64_t integer();
  double number();
  // The raw text of one value of any kind, checked for nesting only.
  std::string_view skip();
  void end();  // nothing but white space may follow

  // Calls visit(key) for each member; visit must consume the value.
  template <class Visit>
  void object(Visit&& visit) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string_view key = string();
      expect(':');
      visit(key);
    } while (accept(','));
    expect('}');
  }
  template <class Visit>
  void array(Visit&& visit) {
    expect('[');
    if (accept(']')) return;
    do visit();
    while (accept(','));
    expect(']');
  }
  [[noreturn]] void error(std::string_view why) const;
  size_t position() const { return at_; }

 private:
  void unescape(std::string& out);
  uint32_t hex4();

  std::string_view text_;
  std::string name_;
  size_t at_ = 0;
  std::string buffer_;
};

// A small JSON text as a tree, nesting bounded.
Json parse_json(std::string_view text, const std::string& name);

// A JSON object and the place it was read from, so that errors can name file and key.
class JsonPart {
 public:
  JsonPart(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}
  const std::string& where() const { return where_; }
  const Json& json() const { return *json_; }

  bool has(const char* key) const;  // present and not null
  std::string type() const { return text("type"); }
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key, int64_t otherwise) const;
  JsonPart part(const char* key) const;
  std::vector<JsonPart> list(const char* key) const;  // of an array
  [[noreturn]] void error(const char* key, std::string_view why) const;

 private:
  const Json& need(const char* key) const;
  const Json* json_;
  std::string where_;
};

}  // namespace apus
