// SPDX-License-Identifier: Apache-2.0
// The token-expert pairs of a mixture of experts in the order of the experts, and products of rows in that order.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

namespace apus::ops {

struct ExpertPairs {
  // int64 [T k], on expert_Tk's device: rows of x; places in the flattened [T, k] tensors.
  at::Tensor token, pair;
  std::vector<int64_t> count;  // pairs of each expert, one run after the other
  at::Tensor ends;             // int64 [E], on the device: where each run ends
};
ExpertPairs pairs_by_expert(const at::Tensor& expert_Tk, int64_t experts);

// The same for some of the pairs: `place`, rising, are their places in the order of the experts.
ExpertPairs pairs_at(const ExpertPairs& pairs, const at::Tensor& place);

// Rows in runs, each run times a matrix of its own: y = x w'. The matrices are one stack [E, O, I] or E tensors [O, I].
// Differentiable in x and in a stack.
at::Tensor grouped_linear(const at::Tensor& x_MI, at::TensorList weight, const at::Tensor& ends_E);
// Its gradients: dx = grad w and dweight [E, O, I] = grad' x of each run, where asked. x may be undefined when dweight
// is not asked.
std::tuple<at::Tensor, at::Tensor> grouped_linear_backward(const at::Tensor& grad_MO, const at::Tensor& x_MI,
                                                           at::TensorList weight, const at::Tensor& ends_E,
                                                           std::array<bool, 2> need);

}  // namespace apus::ops
