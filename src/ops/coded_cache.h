// SPDX-License-Identifier: Apache-2.0
// Caches of keys and values in codes of eight bits (ops/ops.h), made and read by operators that every device has.
#pragma once

#include <ATen/core/Tensor.h>

namespace apus::ops {

// Heads as a cache of this type (at::kChar, at::kByte) holds them: x [T, K, H] -> [T, K, H + kCacheScale].
at::Tensor coded_heads(const at::Tensor& x_TKH, at::ScalarType type);

// Numbers of a head. Values that are a part of the keys are fewer than stand in a row, whose scale is behind all.
int64_t head_size(const at::Tensor& cache);

// Some blocks of it, plain: [n, P, K, H].
at::Tensor plain_blocks(const at::Tensor& cache, const at::Tensor& block_n, at::ScalarType type);

}  // namespace apus::ops
