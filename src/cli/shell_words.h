// SPDX-License-Identifier: Apache-2.0
// What helps people at a shell: completed words and manual pages, both made of the commands' own options.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace apus {

// It can be given, and changes something.
bool can_be_given(const Option& option);

// What the last of the words behind the program's name may become. Empty: nothing known, such as a file.
std::vector<std::string> completed(const std::vector<const Command*>& commands, const std::vector<std::string>& words);

// `apus completion bash|zsh|fish`: the lines that a shell reads to ask `apus --complete WORDS...` for them.
std::string completion_script(const std::string& shell);

// `apus manual [COMMAND]` for man(1): of a command, or of the program.
std::string manual_page(const std::vector<const Command*>& commands, const Command* command,
                        const std::string& version);

}  // namespace apus
