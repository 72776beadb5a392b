// SPDX-License-Identifier: Apache-2.0
// Random tensors as pure functions of a seed: the same call gives the same values, so a recomputed layer sees its first
// dropout mask again and a resumed run needs no generator state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus {

// x with each element zeroed with probability p (in steps of 1/65536).
// The rest is not scaled by 1 / (1 - p): callers do that. `before`: x is a part of a larger tensor, which begins so
// many elements earlier and whose mask this is a part of (when they are even).
at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed, int64_t before = 0);

at::Tensor uniform_noise(at::IntArrayRef shape, double low, double high, uint64_t seed, at::Device device);  // f32
at::Tensor normal_noise(at::IntArrayRef shape, double mean, double deviation, uint64_t seed);  // f32, on the host

}  // namespace apus
