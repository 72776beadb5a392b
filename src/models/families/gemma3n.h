// SPDX-License-Identifier: Apache-2.0
// What config.json of Gemma 3n says of its text part, alone or below towers.
#pragma once

#include "base/json.h"

namespace apus::families::gemma3n {

Json text_says();

}  // namespace apus::families::gemma3n
