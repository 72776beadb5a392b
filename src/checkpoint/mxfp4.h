// SPDX-License-Identifier: Apache-2.0
// Stacked experts whose numbers take four bits each, 32 of them with one scale (OCP's MXFP4), as gpt-oss's files hold
// them: two tensors of bytes for one parameter. They are held so, or taken out while they are loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/disk_layout.h"
#include "quant/matrix.h"

namespace apus {

inline constexpr const char *kMxfp4Blocks = "_blocks", *kMxfp4Scales = "_scales";

// Of a stack [E, O, I]: blocks [E, O, I / 32, 16] and scales [E, O, I / 32].
std::vector<DiskShape> mxfp4_shapes(const std::string& name, const std::vector<int64_t>& stack);

// [E, O, I]. The first of two numbers lies in a byte's lower half.
at::Tensor mxfp4_values(const at::Tensor& blocks, const at::Tensor& scales, at::ScalarType dtype);

// One matrix of the stack, [O, I / 32, 16] and [O, I / 32], held as it is.
std::shared_ptr<const quant::Matrix> mxfp4_matrix(const at::Tensor& blocks, const at::Tensor& scales);

}  // namespace apus
