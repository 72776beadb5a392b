// SPDX-License-Identifier: Apache-2.0
// Convolutions as products of rows.
#pragma once

#include "models/towers/parts.h"

namespace apus {

// Over lines (a weight [out, C, n]) or planes ([out, C, n, n]) of x [B, H, W, C]: each place's neighbours as one row,
// times the weight as one matrix. Beyond the edges are zeros; a side becomes (side - 1) / stride + 1 long.
at::Tensor convolved(const at::Tensor& x_BHWC, const Table& table, int64_t stride);

}  // namespace apus
