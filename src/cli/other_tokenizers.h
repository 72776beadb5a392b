// SPDX-License-Identifier: Apache-2.0
// Models beside the policy (a reference, a teacher, a reward model, a critic) are given the policy's token ids.
#pragma once

#include <filesystem>
#include <string>

namespace apus {

// Fault::Usage, naming both, where the model in `other` (of `flag`) has another tokenizer. A folder without one is
// taken to have the policy's, and that is said.
void require_same_tokenizer(const std::filesystem::path& policy, const std::filesystem::path& other,
                            const std::string& flag);

}  // namespace apus
