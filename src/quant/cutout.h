// SPDX-License-Identifier: Apache-2.0
// Some rows and columns of a quantised weight: what one of several processes holds of it.
#pragma once

#include <memory>

#include "quant/matrix.h"

namespace apus::quant {

struct Cutout {
  int64_t row = 0, column = 0;  // where it begins
  Shape shape;
};

// The weight itself where that is all of it. Its codes stay codes where the cut leaves groups of at least 32 columns.
std::shared_ptr<const Matrix> cut_out(std::shared_ptr<const Matrix> whole, const Cutout& cutout);

// A cutout with its sides moved outwards to multiples of `grid`, as far as the whole goes.
Cutout widened(const Cutout& cutout, Shape whole, int64_t grid);

}  // namespace apus::quant
