// SPDX-License-Identifier: Apache-2.0
// What tests of the simulated Ascend node share: variables under which processes are started, and its folders.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/paths.h"

namespace apus::test {

// Libraries are found, and a node is what it is, by the environment in which a process starts.
struct Environment {
  Environment(const char* name, const std::string& value) : name(name) {
    if (const char* old = std::getenv(name)) before = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before.empty() ? ::unsetenv(name) : ::setenv(name, before.c_str(), 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  const char* name;
  std::string before;
};

inline std::string sim_folder(const char* name) { return (binary_dir() / "tests/sim" / name).string(); }

}  // namespace apus::test
