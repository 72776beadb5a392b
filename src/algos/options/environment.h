// SPDX-License-Identifier: Apache-2.0
// Settings that scripts of ms-swift give by the environment: defaults of the flags that say the same.
#pragma once

#include <cstdint>
#include <string>

namespace apus {

// Fault::Usage names the variable when it holds something else.
double from_environment(const char* name, double otherwise);
int64_t from_environment(const char* name, int64_t otherwise);
bool from_environment(const char* name, bool otherwise);
std::string from_environment(const char* name, const char* otherwise);

}  // namespace apus
