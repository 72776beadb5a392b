// SPDX-License-Identifier: Apache-2.0
// "did you mean": the known names nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace apus {

// At most `count` names, best first; empty when nothing is near.
std::vector<std::string> nearest(std::string_view wanted, const std::vector<std::string>& known, size_t count = 3);
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

}  // namespace apus
