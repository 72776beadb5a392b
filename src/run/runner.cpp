// SPDX-License-Identifier: Apache-2.0
#include "run/runner.h"

#include "base/registry.h"

namespace apus {
void register_runner(const std::string& name, Runner runner) { Registry<Runner>::of().add(name, std::move(runner)); }
}  // namespace apus

extern "C" int apus_run_command(const char* name, const void* options) {
  const auto* runner = apus::Registry<apus::Runner>::of().find(name);
  apus::require(runner, apus::Fault::Bug, "libapus.so knows no command '", name, "'");
  return (*runner)(options);
}
