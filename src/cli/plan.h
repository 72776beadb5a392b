// SPDX-License-Identifier: Apache-2.0
// `apus plan`: memory and speed of a run, from its flags.
// Also how the options of the other commands become a plan, for their --dry_run.
#pragma once

#include "cli/infer.h"
#include "cli/sft.h"
#include "plan/plan.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct PlanOptions : SftOptions, EngineOptions {
  std::string of = "sft";  // the command that is planned
  std::string preset;
  int64_t devices = 1;
  std::optional<std::string> deepspeed, fsdp;
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

// `config`: the model's config.json. What the flags leave open is assumed, and said in the spec.
PlanSpec training_spec(const SftOptions& options, const Json& config, const DeviceFacts& device, int64_t devices);
PlanSpec inference_spec(const ModelOptions& model, const EngineOptions& engine, const Json& config,
                        const DeviceFacts& device);
PlanSpec scoring_spec(const ModelOptions& model, int64_t step_tokens, const Json& config, const DeviceFacts& device);
PlanSpec plan_spec(const PlanOptions& options);

}  // namespace apus
