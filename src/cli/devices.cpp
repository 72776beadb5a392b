// SPDX-License-Identifier: Apache-2.0
// `apus devices`: how the devices of this machine feel.
#include "cli/devices.h"

#include <cstdio>

#include "cli/command.h"
#include "doctor/inventory.h"
#include "doctor/tables.h"

namespace apus {

void DevicesOptions::fields(OptionTable& v) {
  v.group("Devices");
  v("json", json, "print JSON");
  v("ops", ops, "which fused operators run as the device's own kernels, and which as the reference");
  v("root", root, "look at the machine whose files are below this folder");
  common.fields(v);
}

namespace {
int run(const DevicesOptions& options) {
  if (options.ops) return run_heavy("devices", &options);
  const auto groups = inventory(this_machine(options.root));
  const std::string text =
      options.json ? json_text(to_json(groups), 2) + "\n" : devices_text(groups, Paint::for_output());
  std::fputs(text.c_str(), stdout);
  return 0;
}
const RegisterCommand<DevicesOptions> devices_command(
    {.name = "devices",
     .group = "Machine",
     .summary = "the devices: health, power, temperature, memory, load; --ops: their fused operators",
     .examples = {"devices", "devices --json", "devices --ops"}},
    run);
}  // namespace

}  // namespace apus
