// SPDX-License-Identifier: Apache-2.0
// How near two short texts are (ANLS, DocVQA's measure).
#pragma once

#include <string>

namespace apus {

// 1 less the share of letters that must be changed, 0 where that is half of them or more. Case and outer spaces do not
// count.
double nearness(const std::string& answer, const std::string& solution);

}  // namespace apus
