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
// Numbers without exponent, of at most kFractionDigits digits behind the point. Fault::Usage when a bound is too large or
// too fine to be told apart in decimal digits.
constexpr int kFractionDigits = 12;
std::string number_pattern(const Bound* min, const Bound* max, const std::string& where);

}  // namespace apus::guide
