// SPDX-License-Identifier: Apache-2.0
// Of servers that `apus deploy` starts as copies of itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace apus {

std::vector<std::string> our_command_line();  // of this process
// The end of what such a server has printed, to be put behind an error; empty: nothing.
std::string last_words(const std::filesystem::path& log);

}  // namespace apus
