// SPDX-License-Identifier: Apache-2.0
// Convolutions as products of rows.
#pragma once

#include "models/towers/parts.h"

namespace apus {

// How many lines and columns of zeros stand around x, and in which steps places are taken.
struct Sweep {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  int64_t down = 1, across = 1;
};
// Zeros as they must be for (side - 1) / step + 1 places on each side, more of them behind than before.
Sweep even_sweep(int64_t high, int64_t wide, int64_t side, int64_t step);

// Over planes of x [B, H, W, C], by a weight [out, C, n, m]: each place's neighbours as one row, times the weight as
// one matrix. bias may be undefined.
at::Tensor convolved(const at::Tensor& x_BHWC, const at::Tensor& weight, const at::Tensor& bias, const Sweep& sweep);
// Each channel for itself, by a weight [C, 1, n, m].
at::Tensor convolved_apart(const at::Tensor& x_BHWC, const at::Tensor& weight, const Sweep& sweep);

// Over lines (a weight [out, C, n]) or planes ([out, C, n, n]), with as many zeros on both ends; a side becomes
// (side - 1) / stride + 1 long.
at::Tensor convolved(const at::Tensor& x_BHWC, const Table& table, int64_t stride);

}  // namespace apus
