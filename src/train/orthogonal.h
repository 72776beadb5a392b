// SPDX-License-Identifier: Apache-2.0
// A matrix with the same singular vectors, whose singular values are all near 1: what Muon applies of a momentum.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus {

// By so many Newton-Schulz steps.
at::Tensor orthogonal(const at::Tensor& matrix, int64_t iterations);

}  // namespace apus
