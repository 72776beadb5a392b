// SPDX-License-Identifier: Apache-2.0
// What the driver knows of the GPUs, through libnvidia-ml opened at run time. Empty answers where it is absent.
#pragma once

#include <string>
#include <vector>

#include "device/topology.h"

namespace apus::cuda {

std::string nvml_driver_version();  // "unknown" without the library
std::vector<Status> nvml_status();
Topology nvml_topology();

}  // namespace apus::cuda
