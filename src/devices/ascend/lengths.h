// SPDX-License-Identifier: Apache-2.0
// What the two attention files share: the causal mask, and what their lengths come to.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace apus::ascend {

// [2048, 2048] bool, true above the diagonal: what the vendor's compressed causal modes want whatever the length.
const at::Tensor& causal_mask(at::Device device);

// Longest and shortest of cumulative lengths.
struct Extent {
  int64_t shortest, longest;
};
Extent extent(const std::vector<int64_t>& cumulative);

constexpr int64_t kUnlimited = 2147483647;                       // of pre_tokens and next_tokens
constexpr int64_t kDense = 0, kCausalToTheRight = 3, kBand = 4;  // sparse_mode

}  // namespace apus::ascend
