// SPDX-License-Identifier: Apache-2.0
// x W' + b, plain and with a weight packed for the device. Only what the gradients asked for need is kept: with a
// frozen weight (LoRA) the input is not.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace apus::ops {
namespace {

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::vector<int64_t> with_last(const at::Tensor& x, int64_t last) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}
at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  if (has_matmul(x)) return at::linear(x, weight, bias);
  const at::Tensor y = matmul(x, weight.t());
  return bias.has_value() ? y + *bias : y;
}

Triple backward(const at::Tensor& grad, const OptionalTensor& x, const OptionalTensor& weight,
                std::array<bool, 3> need) {
  at::Tensor dx, dweight, dbias;
  if (need[0]) dx = matmul(grad, *weight);
  if (need[1]) dweight = matmul(rows(grad).t(), rows(*x));
  if (need[2]) dbias = rows(grad).sum(0, /*keepdim=*/false, wide_type(grad)).to(grad.scalar_type());
  return {dx, dweight, dbias};
}

at::Tensor no_packing(at::TensorList weights, bool) { return at::empty({0}, weights[0].options()); }

at::Tensor packed_reference(const at::Tensor&, const at::Tensor& packed, const OptionalTensor&, int64_t) {
  fail(Fault::Bug, "packed_linear: this device has no packed weights (", packed.numel(),
       " elements given); pack_linear says so");
}

at::Tensor wide_forward(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  return widen(forward(x, weight, bias));
}

at::Tensor forward_shape(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor&) {
  return at::empty(with_last(x, weight.size(0)), x.options());
}
at::Tensor wide_shape(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor&) {
  return at::empty(with_last(x, weight.size(0)), x.options().dtype(wide_type(x)));
}
Triple backward_shape(const at::Tensor& grad, const OptionalTensor& x, const OptionalTensor& weight,
                      std::array<bool, 3> need) {
  at::Tensor dx, dweight, dbias;
  if (need[0]) dx = at::empty(with_last(grad, weight->size(1)), grad.options());
  if (need[1]) dweight = at::empty({grad.size(-1), x->size(-1)}, grad.options());
  if (need[2]) dbias = at::empty({grad.size(-1)}, grad.options());
  return {dx, dweight, dbias};
}
at::Tensor packed_shape(const at::Tensor& x, const at::Tensor&, const OptionalTensor&, int64_t out) {
  return at::empty(with_last(x, out), x.options());
}

const auto& linear_op() {
  static const auto op = handle<decltype(forward)>("apus::linear");
  return op;
}
const auto& packed_linear_op() {
  static const auto op = handle<decltype(packed_reference)>("apus::packed_linear");
  return op;
}

// A result from an earlier run; wrapped, as it is no input that a gradient could belong to.
struct Known {
  at::Tensor y;
};

struct LinearNode : torch::autograd::Function<LinearNode> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias, const Known& known) {
    const BelowAutograd guard;
    ctx->save_for_backward({weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? weight : at::Tensor()});
    ctx->saved_data["bias"] = requires_grad(bias);
    return known.y.defined() ? known.y : linear_op().call(x, weight, bias);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::linear_backward");
    const BelowAutograd guard;
    const auto saved = ctx->get_saved_variables();
    auto [dx, dweight, dbias] =
        op.call(grad[0], maybe(saved[0]), maybe(saved[1]),
                {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->saved_data["bias"].toBool()});
    return {dx, dweight, dbias, {}};
  }
};

at::Tensor linear_autograd(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  if (any_requires_grad(x, weight, bias)) return LinearNode::apply(x, weight, bias, Known{});
  const BelowAutograd guard;
  return linear_op().call(x, weight, bias);
}

at::Tensor packed_linear_autograd(const at::Tensor& x, const at::Tensor& packed, const OptionalTensor& bias,
                                  int64_t out) {
  require(!any_requires_grad(x, bias), Fault::Bug, "packed_linear has no gradient: train with the plain weight");
  const BelowAutograd guard;
  return packed_linear_op().call(x, packed, bias, out);
}

}  // namespace

at::Tensor linear(const at::Tensor& x_TD, const at::Tensor& weight_OD, const at::Tensor& bias_O,
                  const at::Tensor& known) {
  if (is_quantised(weight_OD)) return quantised_linear(x_TD, weight_OD, bias_O, known);
  if (known.defined())
    return any_requires_grad(x_TD, weight_OD, bias_O) ? LinearNode::apply(x_TD, weight_OD, maybe(bias_O), Known{known})
                                                      : known;
  return linear_op().call(x_TD, weight_OD, maybe(bias_O));
}

at::Tensor wide_linear(const at::Tensor& x_TD, const at::Tensor& weight_OD, const at::Tensor& bias_O) {
  static const auto op = handle<decltype(wide_forward)>("apus::wide_linear");
  if (any_requires_grad(x_TD, weight_OD, bias_O)) return linear(x_TD, weight_OD, bias_O);
  if (is_quantised(weight_OD)) return quantised_linear(x_TD, weight_OD, bias_O, {}).to(at::kFloat);
  const BelowAutograd guard;
  if (x_TD.scalar_type() == at::kFloat) return linear_op().call(x_TD, weight_OD, maybe(bias_O));
  return op.call(x_TD, weight_OD, maybe(bias_O));
}

at::Tensor pack_linear(at::TensorList weights_OD, bool mapped) {
  static const auto op = handle<decltype(no_packing)>("apus::pack_linear");
  if (std::any_of(weights_OD.begin(), weights_OD.end(), is_quantised)) return {};
  const BelowAutograd guard;
  const at::Tensor packed = op.call(weights_OD, mapped);
  return packed.numel() == 0 ? at::Tensor() : packed;
}

at::Tensor packed_linear(const at::Tensor& x_TD, const at::Tensor& packed, const at::Tensor& bias_O, int64_t out) {
  return packed_linear_op().call(x_TD, packed, maybe(bias_O), out);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  // -> dx, dweight, dbias, each only when asked. x may be absent when dweight is not asked, weight when dx is not.
  m.def("linear_backward(Tensor grad, Tensor? x, Tensor? weight, bool[3] need) -> (Tensor, Tensor, Tensor)");
  m.def("wide_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  // An empty result: this device, or this type, gains nothing from packing.
  m.def("pack_linear(Tensor[] weights, bool mapped) -> Tensor");
  m.def("packed_linear(Tensor x, Tensor packed, Tensor? bias, int out) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("linear", apus::ops::forward);
  m.impl("linear_backward", apus::ops::backward);
  m.impl("wide_linear", apus::ops::wide_forward);
  m.impl("pack_linear", apus::ops::no_packing);
  m.impl("packed_linear", apus::ops::packed_reference);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("linear", apus::ops::forward_shape);
  m.impl("linear_backward", apus::ops::backward_shape);
  m.impl("wide_linear", apus::ops::wide_shape);
  m.impl("pack_linear", apus::ops::no_packing);
  m.impl("packed_linear", apus::ops::packed_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) {
  m.impl("linear", apus::ops::linear_autograd);
  m.impl("packed_linear", apus::ops::packed_linear_autograd);
}
