// SPDX-License-Identifier: Apache-2.0
// Sums (maxima, ...) of the same elements of several ranks, in the order of the ranks: the result has the same bits on
// every rank. Numbers below f32 are summed in f32 and rounded once.
#pragma once

#include <c10/core/ScalarType.h>

#include <vector>

#include "device/comm.h"

namespace apus::cpu {

// `out` may be one of `parts`.
void combine(c10::ScalarType type, Reduce op, const std::vector<const void*>& parts, void* out, int64_t count);

}  // namespace apus::cpu
