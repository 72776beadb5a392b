// SPDX-License-Identifier: Apache-2.0
// Qwen3-Coder's calls: tags around bare text, whose types only the tool's description knows.
#pragma once

#include "text/call_reader.h"

namespace apus {

// <tool_call> <function=name> <parameter=key> value </parameter> ... </function> </tool_call>
class QwenCoderReader : public CallReader {
 public:
  QwenCoderReader(bool in_function, const Json* tools) : tools_(tools), wrapped_(!in_function), place_(in_function ? Place::Name : Place::Start) {}
  Status put(char c, CallSink& sink) override;
  Status finish(CallSink& sink) override;

 private:
  Status put_parameter(CallSink& sink);
  std::string argument(std::string_view value) const;  // as JSON text
  const Json* schema() const;                           // of the current parameter; null: not known

  enum class Place { Start, Name, Between, Key, Value, End };
  const Json* tools_;
  bool wrapped_, any_ = false, finished_ = false;
  Place place_;
  std::string text_, function_, key_;
};

}  // namespace apus
