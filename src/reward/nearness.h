// SPDX-License-Identifier: Apache-2.0
// How near two short texts are (ANLS, DocVQA's measure).
#pragma once

#include <string>

namespace apus {

// 1 less the share of letters that must be changed, and 0 where that is half of them or more. Neither case nor spaces
// around a text count.
double nearness(const std::string& answer, const std::string& solution);

}  // namespace apus
