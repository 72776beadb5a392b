// SPDX-License-Identifier: Apache-2.0
// The one exception type. Its kind decides the exit code and the HTTP status;
// its text says what, where, why, what to do.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace apus {

enum class Fault { Usage, Data, Model, Device, Comm, Io, Bug };

int exit_code(Fault fault);           // 2 3 4 5 6 7 70
int http_status(Fault fault);         // 400 422 500 503 503 500 500
const char* fault_name(Fault fault);  // "usage", "data", ...

// Built from a Fault at the call, so that it remembers the caller's line without a macro. (The builtins are what
// std::source_location is made of; clang 14, which runs the fuzz targets, lacks the latter.)
struct At {
  At(Fault f, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : fault(f), file(file), line(line) {}  // NOLINT: implicit
  Fault fault;
  const char* file;
  int line;
};

class Error : public std::runtime_error {
 public:
  Error(At at, const std::string& what) : std::runtime_error(what), at(at) {}
  const At at;
};

template <class... P>
std::string str(const P&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... P>
[[noreturn]] void fail(At at, const P&... why) {
  throw Error(at, str(why...));
}

// Formats only on failure.
template <class... P>
void require(bool ok, At at, const P&... why) {
  if (!ok) [[unlikely]]
    throw Error(at, str(why...));
}

}  // namespace apus
