// SPDX-License-Identifier: Apache-2.0
// Checks made from a measurement of all collectives (apus comm-check).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "device/topology.h"

namespace apus {

// One check a collective, and one over all pairs that names the slow ones: below half of the median bandwidth.
std::vector<Check> comm_checks(const Json& report);
// When there is no report: what the ranks said on standard error.
Check comm_failure(const std::string& said, const std::string& log_dir);

}  // namespace apus
