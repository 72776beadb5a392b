// SPDX-License-Identifier: Apache-2.0
// `apus plan`: memory and speed of a run, from the flags of the command that it is of.
#pragma once

#include "cli/train.h"
#include "plan/plan.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct PlanOptions : TrainCommandOptions, EngineOptions {
  std::string of = "sft";  // the command that is planned
  std::string preset;
  int64_t devices = 1;
  std::string rlhf_type = "grpo", stack = "apus";
  int64_t num_generations = 8, max_completion_length = 512;
  bool search = false, as_json = false;

  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  // Nothing is downloaded: the name of a known shape stands for itself.
  void fetch() {}
  void rehearse(Rehearsal& r) const;
};

PlanSpec plan_spec(const PlanOptions& options);

}  // namespace apus
