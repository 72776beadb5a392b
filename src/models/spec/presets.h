// SPDX-License-Identifier: Apache-2.0
// The shapes of well-known models (models/families) as config.json objects, for `init` and `plan`.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

std::vector<std::string> preset_names();
Json preset_config(const std::string& name);  // Fault::Usage naming the nearest

}  // namespace apus
