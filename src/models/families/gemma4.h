// SPDX-License-Identifier: Apache-2.0
// What config.json of Gemma 4 says of its text part, alone or below a tower.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace apus::families::gemma4 {

Json says();
// Of those whose layers have numbers of their own, so many of the last ones reading keys and values of others.
Json small_says(int64_t shared_layers, bool wide);
Json large_says(int64_t full_kv_heads);
Json mixture_says();

}  // namespace apus::families::gemma4
