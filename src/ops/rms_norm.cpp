// SPDX-License-Identifier: Apache-2.0
// RMS norm, alone and after the residual addition. Statistics in f32 (f64 for f64 inputs).
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// 1 / rms over the last dimension, [..., 1].
at::Tensor inverse_rms(const at::Tensor& wide_x, double eps) {
  return at::rsqrt((wide_x * wide_x).mean(-1, /*keepdim=*/true) + eps);
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = widen(x);
  return ((wide * inverse_rms(wide, eps)).to(x.scalar_type()) * weight).to(x.scalar_type()).contiguous();
}

Pair backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, double eps, bool need_weight) {
  const at::Tensor wide = widen(x), inverse = inverse_rms(wide, eps);
  const at::Tensor normal = wide * inverse, wide_grad = grad.to(wide.scalar_type());
  const at::Tensor g = wide_grad * weight.to(wide.scalar_type());
  const at::Tensor dx = inverse * (g - normal * (g * normal).mean(-1, /*keepdim=*/true));
  at::Tensor dweight;
  if (need_weight) dweight = (wide_grad * normal).reshape({-1, x.size(-1)}).sum(0).to(weight.scalar_type());
  return {dx.to(x.scalar_type()), dweight};
}

Pair add_forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  const at::Tensor sum = x + delta;
  return {sum, forward(sum, weight, eps)};
}

Pair add_backward(const OptionalTensor& grad_sum, const at::Tensor& grad_y, const at::Tensor& sum,
                  const at::Tensor& weight, double eps, bool need_weight) {
  auto [dx, dweight] = backward(grad_y, sum, weight, eps, need_weight);
  if (grad_sum.has_value()) dx = dx + *grad_sum;
  return {dx, dweight};
}

at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

at::Tensor forward_shape(const at::Tensor& x, const at::Tensor&, double) { return like(x); }
Pair backward_shape(const at::Tensor&, const at::Tensor& x, const at::Tensor& weight, double, bool need_weight) {
  return {like(x), need_weight ? like(weight) : at::Tensor()};
}
Pair add_forward_shape(const at::Tensor& x, const at::Tensor&, const at::Tensor&, double) { return {like(x), like(x)}; }
Pair add_backward_shape(const OptionalTensor&, const at::Tensor&, const at::Tensor& sum, const at::Tensor& weight,
                        double, bool need_weight) {
  return {like(sum), need_weight ? like(weight) : at::Tensor()};
}

const auto& rms_norm_op() {
  static const auto op = handle<decltype(forward)>("apus::rms_norm");
  return op;
}
const auto& add_rms_norm_op() {
  static const auto op = handle<decltype(add_forward)>("apus::add_rms_norm");
  return op;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const BelowAutograd guard;
    ctx->save_for_backward({x, weight});
    ctx->saved_data["eps"] = eps;
    return rms_norm_op().call(x, weight, eps);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::rms_norm_backward");
    const BelowAutograd guard;
    const auto saved = ctx->get_saved_variables();
    auto [dx, dweight] =
        op.call(grad[0], saved[0], saved[1], ctx->saved_data["eps"].toDouble(), ctx->needs_input_grad(1));
    return {dx, dweight, {}};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                                                const at::Tensor& delta, const at::Tensor& weight, double eps) {
    const BelowAutograd guard;
    ctx->set_materialize_grads(false);
    auto [sum, y] = add_rms_norm_op().call(x, delta, weight, eps);
    ctx->save_for_backward({sum, weight});
    ctx->saved_data["eps"] = eps;
    return {sum, y};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(add_backward)>("apus::add_rms_norm_backward");
    const BelowAutograd guard;
    if (!grad[1].defined()) return {grad[0], grad[0], {}, {}};
    const auto saved = ctx->get_saved_variables();
    auto [dx, dweight] = op.call(maybe(grad[0]), grad[1], saved[0], saved[1], ctx->saved_data["eps"].toDouble(),
                                 ctx->needs_input_grad(2));
    return {dx, dx, dweight, {}};
  }
};

at::Tensor rms_norm_autograd(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (any_requires_grad(x, weight)) return RmsNorm::apply(x, weight, eps);
  const BelowAutograd guard;
  return rms_norm_op().call(x, weight, eps);
}

Pair add_rms_norm_autograd(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  if (any_requires_grad(x, delta, weight)) {
    const auto out = AddRmsNorm::apply(x, delta, weight, eps);
    return {out[0], out[1]};
  }
  const BelowAutograd guard;
  return add_rms_norm_op().call(x, delta, weight, eps);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps) {
  return rms_norm_op().call(x_TD, weight_D, eps);
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x_TD, const at::Tensor& delta_TD,
                                                const at::Tensor& weight_D, double eps) {
  return add_rms_norm_op().call(x_TD, delta_TD, weight_D, eps);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
  m.def("rms_norm_backward(Tensor grad, Tensor x, Tensor weight, float eps, bool need_weight) -> (Tensor, Tensor)");
  m.def("add_rms_norm(Tensor x, Tensor delta, Tensor weight, float eps) -> (Tensor, Tensor)");
  // grad_sum absent: nothing flows into the sum. The first result is the gradient of x and of delta alike.
  m.def(
      "add_rms_norm_backward(Tensor? grad_sum, Tensor grad_y, Tensor sum, Tensor weight, float eps, bool need_weight) "
      "-> "
      "(Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("rms_norm", apus::ops::forward);
  m.impl("rms_norm_backward", apus::ops::backward);
  m.impl("add_rms_norm", apus::ops::add_forward);
  m.impl("add_rms_norm_backward", apus::ops::add_backward);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("rms_norm", apus::ops::forward_shape);
  m.impl("rms_norm_backward", apus::ops::backward_shape);
  m.impl("add_rms_norm", apus::ops::add_forward_shape);
  m.impl("add_rms_norm_backward", apus::ops::add_backward_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) {
  m.impl("rms_norm", apus::ops::rms_norm_autograd);
  m.impl("add_rms_norm", apus::ops::add_rms_norm_autograd);
}
