// SPDX-License-Identifier: Apache-2.0
// Files of assets/ that are part of the program: nothing has to be found beside it at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace apus {

std::string_view asset(std::string_view name);  // "tokenizer/tokenizer.json"; Fault::Bug when there is none
std::vector<std::string> asset_names(std::string_view prefix = "");

}  // namespace apus
