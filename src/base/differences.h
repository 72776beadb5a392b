// SPDX-License-Identifier: Apache-2.0
// What differs between the settings of two runs.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// "key: there X, here Y" for every key on either side that differs.
std::vector<std::string> differences(const Json& there, const Json& here);

}  // namespace apus
