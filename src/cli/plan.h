// SPDX-License-Identifier: Apache-2.0
// `apus plan`: memory and speed of a run, from the flags of the command that it is of. The options are that command's
// own, and the plan is the one that its --dry_run shows.
#pragma once

#include "cli/planned.h"
#include "plan/plan.h"

namespace apus {

struct PlanOptions {
  explicit PlanOptions(Planned run) : run(std::move(run)) {}
  Planned run;             // the command that is planned
  std::string of = "sft";  // its name
  std::string preset, stack = "apus";
  int64_t devices = 1;
  bool search = false, as_json = false;
  std::vector<std::string> arguments;  // that it was made of

  void fields(OptionTable& v);
  void resolve(OptionTable& v);
};

PlanSpec plan_spec(const PlanOptions& options);

}  // namespace apus
