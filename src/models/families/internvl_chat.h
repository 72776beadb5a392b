// SPDX-License-Identifier: Apache-2.0
// What config.json says of InternVL's tiles in OpenGVLab's layout.
#pragma once

#include "base/json.h"

namespace apus::families::internvl_chat {

// With the tower that looks at them.
Json says(Json vision);

}  // namespace apus::families::internvl_chat
