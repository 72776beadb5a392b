// SPDX-License-Identifier: Apache-2.0
// The parts that readers of calls written as JSON share.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "text/call_reader.h"
#include "text/json_scanner.h"

namespace apus {

std::string trimmed_text(std::string_view text);  // without blanks around it

// {"name": ..., "arguments" or "parameters": ...}. Arguments are passed on as they come, once the name is known.
class JsonCall {
 public:
  JsonScanner::Status put(char c, CallSink& sink);
  bool has_name() const { return name_.has_value(); }
  bool has_arguments() const { return has_arguments_; }
  void complete(CallSink& sink);  // after the object: what was not shown yet

 private:
  enum class Member { Other, Name, Arguments };
  void stream(CallSink& sink);
  bool end_member(CallSink& sink);

  JsonScanner scanner_;
  std::string text_, arguments_;
  std::optional<std::string> name_;
  Member member_ = Member::Other;
  size_t begin_ = 0, shown_ = 0;
  bool has_arguments_ = false;
};

// A name, then its arguments as a JSON object.
class NamedArguments {
 public:
  explicit NamedArguments(std::string name) : name_(std::move(name)) {}
  JsonScanner::Status put(char c, CallSink& sink);
  bool begun() const { return !text_.empty(); }  // has something of the object come?

 private:
  JsonScanner scanner_;
  std::string name_, text_;
  size_t shown_ = 0;
};

// White space, then marker characters that must spell one of a few words.
class MarkerReader {
 public:
  // The word that is now complete; empty: not yet. `wrong`: it can become none.
  std::string_view put(char c, std::initializer_list<std::string_view> words, bool& wrong);

 private:
  std::string text_;
};

}  // namespace apus
