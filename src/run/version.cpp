// SPDX-License-Identifier: Apache-2.0
// The part of `apus --version` that needs the tensor library: its version, and the devices with what drives them.
#include <cstdio>

#include "cli/program.h"
#include "device/device.h"
#include "run/runner.h"
#include "tensor/compat.h"

namespace apus {

namespace {

int run_version(const VersionOptions&) {
  std::printf("libtorch        %s\n", torch_version());
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (kind->available(&why_not)) {
      kind->open(0);  // sets the threads
      std::printf("device %-8s %d x %s; %s\n", kind->name(), kind->count(), kind->label(0).c_str(),
                  kind->library_version().c_str());
    } else {
      std::printf("device %-8s not available: %s\n", kind->name(), why_not.c_str());
    }
  }
  for (const auto& [name, why] : missing_kinds())
    std::printf("device %-8s not in this build: %s\n", name.c_str(), why.c_str());
  return 0;
}

const RegisterRunner<VersionOptions> version("version", run_version);

}  // namespace
}  // namespace apus
