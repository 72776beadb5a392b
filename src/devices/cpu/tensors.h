// SPDX-License-Identifier: Apache-2.0
// From tensors to the pointers that the inner loops take.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "devices/cpu/kernels.h"

namespace apus::cpu {

template <class E>
E* data(const at::Tensor& t) {
  return static_cast<E*>(t.data_ptr());
}

// [..., D] as [rows, D] whose rows are contiguous in themselves and equally far apart; a copy only where there is no such view.
inline at::Tensor as_rows(const at::Tensor& x) {
  if (x.dim() == 2 && (x.stride(1) == 1 || x.size(1) == 1)) return x;
  const at::Tensor dense = x.contiguous();
  return dense.view({-1, x.size(-1)});
}

// [T, N, H] whose heads lie side by side; tokens may be any distance apart (a slice of a wider projection).
inline at::Tensor as_heads(const at::Tensor& x_TNH) {
  return x_TNH.stride(2) == 1 && x_TNH.stride(1) == x_TNH.size(2) ? x_TNH : x_TNH.contiguous();
}

// Calls body with a bf16 or a float of the tensor's type.
template <class Body>
auto by_type(const at::Tensor& t, const char* op, const Body& body) {
  require(t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16, Fault::Bug, op, " on the cpu takes bf16 and f32, not ",
          c10::toString(t.scalar_type()));
  return t.scalar_type() == at::kFloat ? body(float{}) : body(bf16{});
}

}  // namespace apus::cpu
