// SPDX-License-Identifier: Apache-2.0
// What `apus doctor --selftest` computes: each operator of ours on small inputs of the shapes that models have.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace apus {

using Tensors = std::vector<at::Tensor>;

struct OperatorCase {
  std::string op;    // as `apus devices --ops` names it; the operator of its gradient is tried with it
  std::string what;  // which of the operator's ways: "causal, heads of 128"
  // In f64, or whole numbers, on the processor. The former are rounded to the type that is tried.
  Tensors inputs;
  std::function<Tensors(const Tensors&)> compute;
  bool has_gradient = true;
};

// block: positions in a block of the device's cache of keys and values.
std::vector<OperatorCase> operator_cases(int64_t block);

}  // namespace apus
