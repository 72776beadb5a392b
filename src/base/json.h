// SPDX-License-Identifier: Apache-2.0
// JSON that keeps the order of keys (args.json, results and templates depend on it).
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace apus {
using Json = nlohmann::ordered_json;  // include <nlohmann/json.hpp> where it is used
}
