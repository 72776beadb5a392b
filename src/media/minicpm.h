// SPDX-License-Identifier: Apache-2.0
// What pictures of MiniCPM-V become differs by the version that config.json names.
#pragma once

#include "base/json.h"

namespace apus {

// `version`, a number or a text; files before 2.6 do not say it.
double minicpm_version(const Json& config);

}  // namespace apus
