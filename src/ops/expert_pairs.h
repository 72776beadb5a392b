// SPDX-License-Identifier: Apache-2.0
// The token-expert pairs of a mixture of experts in the order of the experts, and products of rows in that order.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

namespace apus::ops {

class ExpertPairs {
 public:
  ExpertPairs() = default;
  ExpertPairs(at::Tensor token, at::Tensor pair, at::Tensor ends);
  ExpertPairs(at::Tensor token, at::Tensor pair, at::Tensor ends, std::vector<int64_t> count);

  // int64 [T k], on expert_Tk's device: rows of x; places in the flattened [T, k] tensors.
  at::Tensor token, pair;
  at::Tensor ends;  // int64 [E], on the device: where the run of each expert's pairs ends

  // Pairs of each expert. Where the host does not know them it waits for the device.
  const std::vector<int64_t>& count() const;
  at::Tensor expert() const;  // int64 [T k], on the device: of each pair

 private:
  std::shared_ptr<std::vector<int64_t>> count_;  // empty: not known yet
};
// Where the run of each expert's pairs ends, int64 [E], when they lie in the order of the experts.
at::Tensor ends_of_runs(const at::Tensor& expert_Tk, int64_t experts);
// Of each of so many rows in runs: whose it is.
at::Tensor expert_of_rows(int64_t rows, const at::Tensor& ends_E);
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
