// SPDX-License-Identifier: Apache-2.0
// Filling in the middle: a prompt of what stands before and behind a gap, as models of code were taught it.
#pragma once

#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace apus {

// Nothing: the tokenizer has no tokens for it.
std::optional<std::string> fim_prompt(const Tokenizer& tokenizer, const std::string& before, const std::string& behind);

}  // namespace apus
