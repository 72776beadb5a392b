// SPDX-License-Identifier: Apache-2.0
// Optimizers whose moments are of a matrix's gradient in fewer dimensions: which sides of it are multiplied, and what
// is kept. No tensor library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/options/optimizer_info.h"

namespace apus {

enum class GradientSide { Right, Left, Both };

// std cuts the longer side's vectors, so that the smaller matrix is kept; reverse_std the other one.
const std::vector<std::string>& gradient_sides();  // by name: std, reverse_std, right, left, full
GradientSide gradient_side(const std::string& name, int64_t rows, int64_t columns);
// Bytes of the moments, so many a number, and of what spans the space in f32: of --optim_args' rank and proj_type.
double gradient_space_bytes(int64_t rows, int64_t columns, const OptimizerArguments& arguments, double of_moments);

}  // namespace apus
