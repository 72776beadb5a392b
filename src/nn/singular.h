// SPDX-License-Identifier: Apache-2.0
// The largest singular values of a matrix [out, in] with their vectors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus {

struct Singular {
  at::Tensor u, s, v;  // [out, q], [q], [q, in], the largest first
};

Singular all_singular(const at::Tensor& matrix);
// So many of them, nearly, by subspace iteration from a random start.
Singular iterated_singular(const at::Tensor& matrix, int64_t width, int64_t iterations, uint64_t seed);

}  // namespace apus
