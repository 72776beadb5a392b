// SPDX-License-Identifier: Apache-2.0
// IFEval's instructions that can be checked: how many words, which words, which form. A row names them in
// "instruction_id_list", and their numbers and words in "kwargs".
#pragma once

#include <string>

#include "base/json.h"

namespace apus {

// All of the row's instructions (the strict measure). Fault::Data for an instruction that is not known.
bool follows_instructions(const Json& row, const std::string& answer);
bool follows_instruction(const std::string& id, const Json& settings, const std::string& prompt,
                         const std::string& answer);

}  // namespace apus
