// SPDX-License-Identifier: Apache-2.0
// Rounding up or down in proportion without a random generator: the threshold of element i at step k is a point of an
// evenly spread sequence, frac(i * phi + k * psi). It costs two additions, is the same on every device, and needs no
// state in checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus {

constexpr int64_t kDitherChunk = 1 << 16;  // elements a pass: what a core's cache holds in f32

// Thresholds in [0, 1) for `count` elements (<= kDitherChunk), f32. `stream` keeps tensors apart.
at::Tensor dither(int64_t count, int64_t stream, int64_t chunk, int64_t step, at::Device device);

// bf16 target <- f32 source.
void round_stochastic_(at::Tensor& target, const at::Tensor& source, int64_t stream, int64_t step);

}  // namespace apus
