// SPDX-License-Identifier: Apache-2.0
// Programs that a model wrote, run by Python in a process that has given up all that a calculation does not need
// (assets/eval/confined.py): it cannot write files, start processes or open sockets. Its time and its
// memory are bounded.
#pragma once

#include <string>

namespace apus {

struct CodeRun {
  bool passed = false;  // came to its end without an error
  std::string why;      // not: the end of what it said
  std::string printed;  // in either case, as far as it came
};

struct CodeLimits {
  double seconds = 10;
  int64_t memory = int64_t{4} << 30;  // bytes
};

// Fault::Io where a program cannot be confined: then none is run.
CodeRun run_python(const std::string& program, const CodeLimits& limits = {});

// What an answer in words has of a program: the last block of Python between fences that defines `name`, or else the
// first; without fences all of it.
std::string code_in(const std::string& answer, const std::string& name);

}  // namespace apus
