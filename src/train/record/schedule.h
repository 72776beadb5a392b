// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: the factor on every group's learning rate as a pure function of the step, with the same
// values as HuggingFace's schedules of the same names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct ScheduleSpec {
  std::string type = "cosine";
  double base_lr = 0;  // what min_lr and lr_end are relative to
  int64_t total_steps = 0, warmup_steps = 0;
};

// factor(step): step 0 is the first optimizer step. `kwargs` is --lr_scheduler_kwargs (an object or null); keys that
// the schedule does not know are refused.
using Schedule = std::function<double(int64_t step)>;
Schedule make_schedule(const ScheduleSpec& spec, const Json& kwargs);

const std::vector<std::string>& schedule_names();

// --warmup_steps wins when it is positive; else ceil(total * ratio).
int64_t warmup_length(int64_t warmup_steps, double warmup_ratio, int64_t total_steps);

}  // namespace apus
