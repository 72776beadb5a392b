// SPDX-License-Identifier: Apache-2.0
// Rounding up or down in proportion without a random generator: the threshold of element i is a point of an evenly
// spread sequence, (i * golden ratio + start) mod 1 in 32-bit integers. It costs a multiplication, is the same to the
// bit on every device, and needs no state in checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus {

constexpr int64_t kDitherChunk = 1 << 16;  // elements a pass: what a core's cache holds in f32
constexpr uint32_t kDitherStride = 0x9e3779b9;

// Where the sequence begins for a tensor (each has its own `stream`) at a step; evenly spread over steps too. >= 0.
int64_t dither_start(int64_t stream, int64_t step);
// Where the sequence stands after `elements` more.
inline int64_t advanced(int64_t start, int64_t elements) {
  return static_cast<uint32_t>(start) + static_cast<uint32_t>(elements) * kDitherStride;
}

// Thresholds in [0, 2^32) of elements [begin, begin + count), count <= kDitherChunk; int64.
at::Tensor dither(int64_t begin, int64_t count, int64_t start, at::Device device);

// bf16 target <- f32 source.
void round_stochastic_(at::Tensor& target, const at::Tensor& source, int64_t start);

}  // namespace apus
