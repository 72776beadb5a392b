// SPDX-License-Identifier: Apache-2.0
// Work in a process of its own: a crash or a hang there is a result and does not end us. Vendors' libraries do both.
#pragma once

#include <functional>
#include <string>

namespace apus {

struct Isolated {
  enum class End { Done, Crashed, Hung } end = End::Done;
  int signal = 0;    // that ended it
  std::string text;  // what the work returned
  std::string said;  // the end of what it wrote to standard error
};

// Forks: to be called while this process has one thread. The work's output does not reach ours.
Isolated run_isolated(const std::function<std::string()>& work, double limit_s);

}  // namespace apus
