// SPDX-License-Identifier: Apache-2.0
// The bodies of the commands that need the tensor library: one file per command in run/, registered under the command's
// name, reached from cli/ through one C function of libapus.so.
#pragma once

#include <functional>
#include <string>

namespace apus {

using Runner = std::function<int(const void* options)>;
void register_runner(const std::string& name, Runner runner);

template <class Options>
struct RegisterRunner {
  RegisterRunner(const char* name, int (*run)(const Options&)) {
    register_runner(name, [run](const void* options) { return run(*static_cast<const Options*>(options)); });
  }
};

}  // namespace apus

// The entry of libapus.so. `options` is the options struct that the command of this name declares in cli/<command>.h.
extern "C" int apus_run_command(const char* name, const void* options);
