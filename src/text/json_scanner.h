// SPDX-License-Identifier: Apache-2.0
// Follows JSON character by character, as a model writes it:
// is what has come so far valid, where do members begin and end?
#pragma once

#include <string>

namespace apus {

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }  // to JSON

class JsonScanner {
 public:
  enum class Status { More, Done, Bad };
  // One more character of the document. After Done only white space may follow; the caller checks that.
  Status put(char c);

  size_t depth() const { return open_.size(); }
  const std::string& member() const { return member_; }  // the key of the outermost object's current member
  bool value_begins() const { return value_begins_; }    // the last character began the value of that member
  // The last character ended that value (a number is ended by the character behind it).
  bool value_ended() const { return value_ended_; }

 private:
  enum class State { Value, FirstItem, Key, FirstKey, Colon, After, Text, Escape, Hex, Plain };
  Status begin_value(char c);
  Status end_value();
  Status put_text(char c);
  Status put_after(char c);
  bool plain_is_valid() const;

  static constexpr size_t kDeepest = 200;
  std::string open_;   // brackets that are to be closed
  std::string token_;  // the key, number or word being read
  std::string member_;
  State state_ = State::Value;
  bool is_key_ = false, value_begins_ = false, value_ended_ = false;
  int hex_left_ = 0;
};

}  // namespace apus
