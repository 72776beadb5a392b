// SPDX-License-Identifier: Apache-2.0
// `apus devices --ops`: for each fused operator and each device kind that can be used here, whether the device has its
// own kernel or runs the reference.
#include "cli/devices.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "device/device.h"
#include "ops/choices.h"
#include "run/runner.h"

namespace apus {

namespace {
// "reference", "native", or the vendor's operators behind it.
std::string served(const OpChoice& op) { return !op.native ? "reference" : op.by.empty() ? "native" : op.by; }

void print_table(const std::vector<DeviceKind*>& kinds, const Json& table) {
  std::vector<size_t> width(kinds.size());
  for (size_t k = 0; k < kinds.size(); ++k) {
    width[k] = std::strlen(kinds[k]->name());
    for (const auto& row : table) width[k] = std::max(width[k], row.at(kinds[k]->name()).get<std::string>().size());
  }
  const auto line = [&](const std::string& first, const auto& cell) {
    std::string text = first + std::string(first.size() < 24 ? 24 - first.size() : 1, ' ');
    for (size_t k = 0; k < kinds.size(); ++k) {
      const std::string word = cell(kinds[k]->name());
      text += word + std::string(k + 1 < kinds.size() ? width[k] - word.size() + 2 : 0, ' ');
    }
    std::printf("  %s\n", text.c_str());
  };
  line("operator", [](const char* kind) { return std::string(kind); });
  for (const auto& [op, row] : table.items())
    line(op, [&row = row](const char* kind) { return row.at(kind).template get<std::string>(); });
}

int run_devices(const DevicesOptions& options) {
  std::vector<DeviceKind*> kinds;
  Json unusable = Json::object(), table = Json::object();
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (!kind->available(&why_not)) {
      unusable[kind->name()] = why_not;
      continue;
    }
    open_device(kind->name());          // some register their kernels when they are opened
    kinds.insert(kinds.begin(), kind);  // the cpu first: its names are short
  }
  for (const DeviceKind* kind : kinds)
    for (const OpChoice& op : op_choices(*kind)) table[op.op][kind->name()] = served(op);
  if (options.json) {
    std::printf("%s\n", json_text({{"operators", table}, {"not_usable", unusable}}, 2).c_str());
    return 0;
  }
  print_table(kinds, table);
  for (const auto& [name, why] : unusable.items())
    std::printf("\n  %s is not usable: %s\n", name.c_str(), why.get<std::string>().c_str());
  std::printf(
      "\n  native, or a vendor's operator: a kernel of the device's own; reference: plain tensor operators, right on "
      "every device\n");
  return 0;
}

const RegisterRunner<DevicesOptions> devices("devices", run_devices);

}  // namespace
}  // namespace apus
