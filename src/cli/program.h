// SPDX-License-Identifier: Apache-2.0
// The program as a function: command line in, exit code out. Every failure ends here, as a message and a code.
#pragma once

#include <string>
#include <vector>

namespace apus {

struct VersionOptions {};  // `apus --version` has none; its heavy part is run/version.cpp

int run_program(std::vector<std::string> argv);
int print_version();

}  // namespace apus
