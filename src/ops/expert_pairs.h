// SPDX-License-Identifier: Apache-2.0
// The token-expert pairs of a mixture of experts in the order of the experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace apus::ops {

struct ExpertPairs {
  at::Tensor token, pair;      // int64 [T k], on expert_Tk's device: rows of x; places in the flattened [T, k] tensors
  std::vector<int64_t> count;  // pairs of each expert, one run after the other
};
ExpertPairs pairs_by_expert(const at::Tensor& expert_Tk, int64_t experts);

}  // namespace apus::ops
