// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of the angles by which tokens turn, on the device of their positions where it makes them itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

namespace apus::ops {

// At most so many frequencies.
constexpr int64_t kMostFrequencies = 256;

// Whether the device makes these tables itself; elsewhere they are made on the host.
bool makes_rope_tables(at::Device device);

// position [T], or [3, T], int64; of frequency i the position of `axis[i]` counts. -> cos, sin [T, R] f32.
std::tuple<at::Tensor, at::Tensor> rope_table(const at::Tensor& position, const std::vector<float>& inverse,
                                              const std::vector<int>& axis, double scale, bool backwards);

}  // namespace apus::ops
