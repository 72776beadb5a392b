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
constexpr double kEndOfFractions = 1e15;  // numbers of which a double holds no digit behind the point
// Numbers below kEndOfFractions, without exponent. A bound of so many digits that a double does not tell its neighbours
// from it is moved inwards, to one with fewer. The smaller bound must be below
// kEndOfFractions, the larger above its negative.
std::string number_pattern(const Bound* min, const Bound* max);

}  // namespace apus::guide
