// SPDX-License-Identifier: Apache-2.0
// Random tensors as pure functions of a seed: the same call gives the same values, so a recomputed layer sees its first
// dropout mask again and a resumed run needs no generator state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus {

// x with each element zeroed with probability p (in steps of 1/65536).
// The rest is not scaled by 1 / (1 - p): callers do that.
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed);

at::Tensor uniform_noise(at::IntArrayRef shape, double low, double high, uint64_t seed, at::Device device);  // f32
at::Tensor normal_noise(at::IntArrayRef shape, double mean, double deviation, uint64_t seed);  // f32, on the host

}  // namespace apus
