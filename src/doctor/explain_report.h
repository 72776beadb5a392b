// SPDX-License-Identifier: Apache-2.0
// An explanation of a log, for people.
#pragma once

#include <string>

#include "doctor/failures.h"
#include "doctor/paint.h"

namespace apus {

std::string explanation_text(const Explanation& explanation, const std::string& path, const Paint& paint, int width);

}  // namespace apus
