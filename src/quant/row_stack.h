// SPDX-License-Identifier: Apache-2.0
// Matrices that lie one below the other, as experts of a layer do, as one matrix.
#pragma once

#include <memory>
#include <vector>

#include "quant/matrix.h"

namespace apus::quant {

// Null: they are not alike (sizes, form of their codes), or have no codes.
std::shared_ptr<const Matrix> row_stack(std::vector<std::shared_ptr<const Matrix>> matrices);

}  // namespace apus::quant
