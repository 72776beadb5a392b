// SPDX-License-Identifier: Apache-2.0
// `megatron sft|pt|rlhf ...` (a link of that name, or `apus megatron`): the flags of Megatron-SWIFT, said in ours.
#pragma once

#include <string>
#include <vector>

namespace apus {

struct OwnFlags {
  std::vector<std::string> arguments;  // of `apus <command>`
  std::vector<std::string> notes;      // what was understood in another way, or has no meaning here
};

// `ranks`: processes of the run; 0: not known yet, as many as the mesh that is asked for has. All flags that cannot be
// had are refused at once. Flags that are none of Megatron's stay as they are.
OwnFlags own_flags(const std::vector<std::string>& megatron_arguments, int64_t ranks);

}  // namespace apus
