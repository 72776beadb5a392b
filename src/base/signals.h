// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM as a flag, for work that can stop at a good place. While a StopFlag lives, the first signal sets
// it and the second one ends the process as if nobody had asked.
#pragma once

#include <signal.h>

#include <exception>

namespace apus {

// Thrown to leave after a stop; main answers with 128 + signal.
struct Interrupted : std::exception {
  explicit Interrupted(int signal) : signal(signal) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal;
};

class StopFlag {  // one at a time; the previous handlers return with its end
 public:
  StopFlag();
  ~StopFlag();
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;

  bool raised() const;  // safe from any thread
  int signal() const;   // SIGINT or SIGTERM, 0 when none
  void throw_if_raised() const;

 private:
  struct sigaction interrupt_, terminate_;
};

}  // namespace apus
