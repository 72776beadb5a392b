// SPDX-License-Identifier: Apache-2.0
// `megatron sft|pt|rlhf ...` (a link of that name, or `apus megatron`): the flags of Megatron-SWIFT, said in ours.
#pragma once

#include <string>
#include <vector>

#include "plan/model_facts.h"

namespace apus {

struct OwnFlags {
  std::vector<std::string> arguments;  // of `apus <command>`
  std::vector<std::string> notes;      // what was understood in another way, or has no meaning here
};

// What is known of a run beside its flags.
struct MegatronRun {
  // Processes; 0: not known yet, as many as the mesh that is asked for has.
  int64_t ranks = 1;
  std::string command = "sft";
  const ModelFacts* model = nullptr;  // null: its config.json is not at hand
};

// All flags that cannot be had are refused at once. Flags that are none of Megatron's stay as they are. A mesh is the
// real one where model and command can be shared out so (abilities/rules.cpp); else processes of it share out rows and
// weights in ways that all models know.
OwnFlags own_flags(const std::vector<std::string>& megatron_arguments, const MegatronRun& run);

// The same for `megatron export`. Checkpoints are HuggingFace's on both of its sides: what would be converted is
// written anew, merged or quantised.
OwnFlags own_export_flags(const std::vector<std::string>& megatron_arguments);

struct MegatronFlag {
  std::string name;
  std::vector<std::string> values;
};
std::vector<MegatronFlag> megatron_flags(const std::vector<std::string>& arguments);

// A configuration file as the first argument becomes flags; its ENV goes into the environment where it is not set.
std::vector<std::string> without_file(const std::vector<std::string>& arguments);
// The value that counts of a flag; empty: it is not given.
std::string value_of(const std::vector<std::string>& arguments, const std::string& flag);

}  // namespace apus
