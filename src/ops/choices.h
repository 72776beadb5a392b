// SPDX-License-Identifier: Apache-2.0
// Which operators a device computes by kernels of its own, and which by the reference.
#pragma once

#include <string>
#include <vector>

namespace apus {

class DeviceKind;

struct OpChoice {
  std::string op;       // "rms_norm", without the namespace
  bool native = false;  // else the reference runs, from plain aten operators
  std::string by;       // the vendor's operators, where the device says so
};

// Sorted by name. Devices register their kernels when they are opened: open it first.
std::vector<OpChoice> op_choices(const DeviceKind& kind);

}  // namespace apus
