// SPDX-License-Identifier: Apache-2.0
// The two thin products of LoRA, which add to a linear layer's result. Shapes: T tokens, I inputs, O outputs, R rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace apus::ops {

// y += scale * h b', in place; gives h = x a' in x's type. Records no gradient: its callers define their own.
at::Tensor add_low_rank(at::Tensor& y_TO, const at::Tensor& x_TI, const at::Tensor& a_RI, const at::Tensor& b_OR,
                        double scale);

// dx in the type of dy, da and db in those of a and b; each only when asked, else undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor> low_rank_backward(const at::Tensor& dy_TO, const at::Tensor& x_TI,
                                                                 const at::Tensor& h_TR, const at::Tensor& a_RI,
                                                                 const at::Tensor& b_OR, double scale,
                                                                 std::array<bool, 3> need);

}  // namespace apus::ops
