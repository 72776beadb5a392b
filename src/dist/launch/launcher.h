// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a run on this machine and waits until the last has ended: shows the output of the first, keeps
// the others' output in files, passes Ctrl-C on, tells the first failure once,
// leaves no process behind. No tensor library.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/launch/environment.h"

namespace apus {

struct Launch {
  LaunchPlan plan;
  std::vector<std::string> argv;  // of every rank: this same program is run again
  // Rank N's output: <log_dir>/rankN.log, but for the first rank of this machine.
  std::filesystem::path log_dir;
  double grace_s = 3;  // after a first failure: for the others to tell theirs
  // How often they are started again when some were lost, and with which arguments then.
  int64_t restarts = 0;
  std::function<std::vector<std::string>()> again = {};
};

// The exit code: 0, that of the first failure, or 128 + signal after a signal to the launcher,
// or to that of another machine.
int launch(const Launch& launch);

// In a rank: leaves the reason of its end with the launcher. False when nobody launched this process.
bool tell_launcher(Fault fault, const std::string& text);
bool is_launched();  // this process is a rank that it started

// The share of `cores` (numbers of processors) for one rank of several; all of them when there are too few.
std::vector<int> allowed_cores();  // of this process
std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world);

}  // namespace apus
