// SPDX-License-Identifier: Apache-2.0
// Qwen3-Coder's calls: tags around bare text, whose types only the tool's description knows.
#pragma once

#include "text/call_reader.h"

namespace apus {

// <tool_call> <function=name> <parameter=key> value </parameter> ... </function> </tool_call>
// A bare value as JSON text. A string stays one when the tool wants a string; without a description, what reads as
// another JSON value is taken so. `tools`: as requests list them, or null.
std::string json_argument(std::string_view value, const Json* tools, const std::string& function,
                          const std::string& key);
std::string as_json_string(std::string_view text);

class QwenCoderReader : public CallReader {
 public:
  // `end`: the mark behind </function>.
  QwenCoderReader(bool in_function, const Json* tools, std::string_view end = "</tool_call>")
      : tools_(tools), end_call_(end), wrapped_(!in_function), place_(in_function ? Place::Name : Place::Start) {}
  Status put(char c, CallSink& sink) override;
  Status finish(CallSink& sink) override;

 private:
  Status put_parameter(CallSink& sink);

  enum class Place { Start, Name, Between, Key, Value, End };
  const Json* tools_;
  std::string_view end_call_;
  bool wrapped_, any_ = false, finished_ = false;
  Place place_;
  std::string text_, function_, key_;
};

}  // namespace apus
