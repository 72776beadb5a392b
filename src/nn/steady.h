// SPDX-License-Identifier: Apache-2.0
// Functions of single numbers whose result does not depend on where in a tensor a number stands. libtorch rounds such
// functions differently at the end of a tensor than inside it; by way of f64, where the device has it, a token's bits
// are the same however many tokens there are.
#pragma once

#include <ATen/core/Tensor.h>

namespace apus {

// This value, with the gradient of another way to the same number.
at::Tensor with_gradient_of(const at::Tensor& made, const at::Tensor& value);

at::Tensor steady_softplus(const at::Tensor& x);
at::Tensor steady_sigmoid(const at::Tensor& x);
at::Tensor steady_expm1(const at::Tensor& x);

}  // namespace apus
