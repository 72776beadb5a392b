// SPDX-License-Identifier: Apache-2.0
// The decimal numbers that are multiples of another.
#pragma once

#include <cstdint>
#include <string>

#include "guide/grammar.h"

namespace apus::guide {

// A positive number as digits and a place of the point: 0.25 is 25 with 2 decimals.
struct Unit {
  uint64_t digits = 1;
  int decimals = 0;
};
Unit unit_of(double value, const std::string& where);  // Fault::Usage when it is not above 0, or has too many digits

// Multiples of `unit` from min to max, both given in units of its last decimal (50 with 2 decimals is 0.50). Written
// with exactly its decimals, without leading zeros or -0. A large unit has a bounded number of digits. Fault::Usage
// when it cannot be done with a bounded automaton.
Node multiples(Grammar& g, int64_t min, int64_t max, Unit unit, const std::string& where);

}  // namespace apus::guide
