// SPDX-License-Identifier: Apache-2.0
// --max_run_time: whether there is still time for another step and the checkpoint behind it.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace apus {

class TimeLimit {
 public:
  TimeLimit(double seconds, Stopwatch since) : seconds_(seconds), since_(since) {}  // 0 seconds: there is no limit
  bool any() const { return seconds_ > 0; }
  void step_took(double seconds) { step_ = std::max(step_, seconds); }  // with what was done behind it
  void save_took(double seconds) { save_ = std::max(save_, seconds); }
  double left() const { return seconds_ - since_.seconds(); }
  // Steps and checkpoints differ: half as much again as the longest so far, and a fiftieth of all for the end.
  // `saves`: checkpoints to be written until then, with one that is being written.
  double needed(int saves = 1) const { return 1.5 * (step_ + saves * save_) + seconds_ / 50; }
  bool is_near(int saves = 1) const { return any() && left() < needed(saves); }

 private:
  double seconds_, step_ = 0, save_ = 0;
  Stopwatch since_;
};

}  // namespace apus
