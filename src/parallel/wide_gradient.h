// SPDX-License-Identifier: Apache-2.0
// Gradients of 16 bits that are added up in f32 (--grad_reduce_in_fp32): what a backward pass left is widened, and the
// next one adds to it there.
#pragma once

#include <ATen/core/Tensor.h>

namespace apus {

inline void widen_gradient(const at::Tensor& param) {
  const at::Tensor& grad = param.grad();
  if (grad.defined() && grad.element_size() < 4) param.mutable_grad() = grad.detach().to(at::kFloat);
}

// In which its gradient is summed.
inline at::ScalarType sum_type(const at::Tensor& param, bool wide) {
  return wide && param.element_size() < 4 ? at::kFloat : param.scalar_type();
}

}  // namespace apus
