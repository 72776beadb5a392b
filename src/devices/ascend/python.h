// SPDX-License-Identifier: Apache-2.0
// A Python interpreter inside this process, for the build of torch_npu that pip installs: it cannot live without one.
// libpython is opened at run time, so that neither building nor running elsewhere needs Python.
#pragma once

#include <string>
#include <vector>

namespace apus::ascend {

// A Python installation, as its own executable describes it.
struct PythonPlace {
  std::string executable, base_executable;  // the second differs in a virtual environment
  std::vector<std::string> libraries;       // where its libpython may be
  std::vector<std::string> path;            // sys.path
  std::string torch, torch_npu;             // the packages' folders; empty: not installed
};

// Asks the executable; false with the reason when it does not answer.
bool ask_python(const std::string& executable, PythonPlace& place, std::string* why_not);

// Starts the interpreter in this process (once; without signal handlers) and leaves its lock free.
void start_python(const PythonPlace& place);

// Runs statements that may set `answer`, and gives str(answer). Throws Fault::Device with Python's own message.
std::string run_python(const std::string& statements);

}  // namespace apus::ascend
