// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM and SIGUSR1 (which schedulers send some minutes before the time is over) as a flag, for work that can
// stop at a good place. While a StopFlag lives, the first signal sets it, and one that comes a second later or more
// ends the process as if nobody had asked. Sooner it is the same wish once more: Slurm signals a launcher and its
// ranks, and the launcher passes it on.
#pragma once

#include <signal.h>

#include <exception>
#include <iterator>

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
  int signal() const;   // SIGINT, SIGTERM or SIGUSR1, 0 when none
  void throw_if_raised() const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction before_[std::size(kSignals)];
};

}  // namespace apus
