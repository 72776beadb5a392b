// SPDX-License-Identifier: Apache-2.0
// The program as a user starts it.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "tests/paths.h"

namespace apus::test {

struct ShellResult {
  int code;
  std::string out;  // with standard error
};

inline ShellResult shell(const std::string& command) {
  ShellResult result{-1, ""};
  FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (!pipe) return result;
  std::array<char, 4096> block;
  while (const size_t got = std::fread(block.data(), 1, block.size(), pipe)) result.out.append(block.data(), got);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

inline std::string program() { return binary_dir() / "apus"; }

}  // namespace apus::test
