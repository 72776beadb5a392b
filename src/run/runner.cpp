// SPDX-License-Identifier: Apache-2.0
#include "run/runner.h"

#include <c10/util/Exception.h>

#include "base/registry.h"
#include "device/failure.h"

namespace apus {
void register_runner(const std::string& name, Runner runner) { Registry<Runner>::of().add(name, std::move(runner)); }
}  // namespace apus

extern "C" int apus_run_command(const char* name, const void* options) {
  const auto* runner = apus::Registry<apus::Runner>::of().find(name);
  apus::require(runner, apus::Fault::Bug, "libapus.so knows no command '", name, "'");
  try {
    return (*runner)(options);
  } catch (const c10::Error& error) {
    // Whatever the tensor library says is put in our words here, once.
    throw apus::explained(error,
                          "A smaller batch, a shorter context or a smaller model need less; or free the device, or "
                          "take another by --device");
  }
}
