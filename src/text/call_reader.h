// SPDX-License-Identifier: Apache-2.0
// Readers of tool calls: each follows one format, character by character, from behind its start marker.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls.h"

namespace apus {

// What a reader found; its parser turns it into deltas.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual void name(std::string_view name) = 0;            // begins a call
  virtual void arguments(std::string_view json_part) = 0;  // more of its arguments
  virtual void done() = 0;                                 // the call is complete and valid
};

class CallReader {
 public:
  enum class Status {
    More,
    Closed,  // the section of calls ended with this character
    // The section ended earlier: what came after the last complete call is not part of it.
    Outside,
    Bad,  // what came after the last complete call is not a call
  };
  virtual ~CallReader() = default;
  virtual Status put(char c, CallSink& sink) = 0;
  virtual Status finish(CallSink& sink) = 0;  // the text is over: Closed or Bad
};

std::vector<std::string_view> call_markers(ToolFormat format);  // with which calls begin
std::unique_ptr<CallReader> make_call_reader(ToolFormat format, std::string_view marker, const Json* tools);

}  // namespace apus
