// SPDX-License-Identifier: Apache-2.0
// Readers of calls that agents write as lines of words, or between tags of their own.
#pragma once

#include <string>
#include <string_view>

#include "text/call_reader.h"
#include "text/json_scanner.h"

namespace apus {

struct ReactWords {
  std::string_view action, input, observation;
};
inline constexpr ReactWords kReactWords = {"Action:", "Action Input:", "Observation:"};
inline constexpr ReactWords kFlowerWords = {"✿FUNCTION✿:", "✿ARGS✿:", "✿RESULT✿:"};

// Action: name, Action Input: {...}, and the word behind which a result would stand.
class ReactReader : public CallReader {
 public:
  explicit ReactReader(const ReactWords& words) : words_(words) {}
  Status put(char c, CallSink& sink) override;
  Status finish(CallSink& sink) override;

 private:
  enum class Place { Name, Input, Arguments, End } place_ = Place::Name;
  const ReactWords words_;
  JsonScanner scanner_;
  std::string name_, text_;
};

// <tool_call>name <arg_key>key</arg_key> <arg_value>value</arg_value> ... </tool_call>
class GlmReader : public CallReader {
 public:
  explicit GlmReader(const Json* tools) : tools_(tools) {}
  Status put(char c, CallSink& sink) override;
  Status finish(CallSink& sink) override;

 private:
  enum class Place { Name, Between, Key, BeforeValue, Value } place_ = Place::Name;
  Status put_between(CallSink& sink);
  const Json* tools_;
  bool any_ = false;
  std::string name_, key_, text_;
};

}  // namespace apus
