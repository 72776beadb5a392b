// SPDX-License-Identifier: Apache-2.0
// Patterns of the decimal numbers between two bounds.
#pragma once

#include <cstdint>
#include <string>

namespace apus::guide {

// Integers from min to max, both included: without leading zeros or -0.
std::string integer_pattern(int64_t min, int64_t max);

struct Bound {
  double value;
  bool included = true;
};
// Numbers without exponent. Fault::Usage when a bound has too many digits for a double to tell its neighbours from it.
std::string number_pattern(const Bound* min, const Bound* max, const std::string& where);

}  // namespace apus::guide
