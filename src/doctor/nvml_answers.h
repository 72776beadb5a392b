// SPDX-License-Identifier: Apache-2.0
// What the GPUs' library says of them, where nvidia-smi is absent (images without the tools). Asked in a process of its
// own: a driver that hangs or crashes there does not take us along.
#pragma once

#include <vector>

#include "device/topology.h"

namespace apus {

std::vector<Status> nvml_devices();  // empty when there is no library, or no answer
Topology nvml_links();

}  // namespace apus
