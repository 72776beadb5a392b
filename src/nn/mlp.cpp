// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "nn/state_layer.h"
#include "ops/ops.h"

namespace apus {

at::Tensor activated(Activation act, const at::Tensor& x) {
  switch (act) {
    case Activation::Gelu:
      return at::gelu(x);
    case Activation::GeluTanh:
      return at::gelu(x, "tanh");
    case Activation::Relu:
      return at::relu(x);
    case Activation::Relu2:
      return at::relu(x).square();
    case Activation::Xielu:
      fail(Fault::Model, "config.json: hidden_act 'xielu' is not known with gates");
    case Activation::Tanh:
      return at::tanh(x);
    case Activation::Silu:
      break;
  }
  return at::silu(x);
}

// Silu's is one fused operator; the others are rare and composed. gate may be a slice of a wider tensor, of which
// libtorch's gradient of gelu makes nonsense on some processors.
at::Tensor gated(Activation act, const at::Tensor& gate_TF, const at::Tensor& up_TF, double limit) {
  if (limit > 0) return gated(act, gate_TF.clamp_max(limit), up_TF.clamp(-limit, limit));
  if (act == Activation::Silu) return ops::swiglu(gate_TF, up_TF);
  return activated(act, act == Activation::Relu ? gate_TF : gate_TF.contiguous()) * up_TF;
}

namespace {
// By how much numbers lie above that below which a bell curve of their mean and deviation has so large a share.
at::Tensor above_most(const at::Tensor& x_TF, double share) {
  // The number of deviations is rounded to the numbers' type, as those were who trained so.
  const double deviations = at::erfinv(at::scalar_tensor(2 * share - 1, at::kDouble)).item<double>() * std::sqrt(2.0);
  const double many = at::scalar_tensor(deviations, x_TF.scalar_type()).item<double>();
  const at::Tensor wide = widened(x_TF), mean_T1 = wide.mean(-1, /*keepdim=*/true);
  const at::Tensor deviation_T1 = (wide - mean_T1).square().mean(-1, /*keepdim=*/true).sqrt();
  return at::relu(wide - (mean_T1 + deviation_T1 * many)).to(x_TF.scalar_type());
}
}  // namespace

Xielu::Xielu()
    : positive_(param("alpha_p", {1})),
      negative_(param("alpha_n", {1})),
      beta_(param("beta", {1})),
      eps_(param("eps", {1})) {
  for (Param* fixed : {&beta_, &eps_}) fixed->statistic = true, fixed->trainable = false, fixed->scalar = true;
}

at::Tensor Xielu::operator()(const at::Tensor& x) const {
  const at::Tensor beta = beta_.data.to(x.scalar_type()), eps = eps_.data.to(x.scalar_type());
  const at::Tensor p = at::softplus(positive_.data), n = beta + at::softplus(negative_.data);
  return at::where(x > 0, p * x * x + beta * x, (at::expm1(at::minimum(x, eps)) - x) * n + beta * x);
}

std::vector<Linear*> Mlp::inner(int64_t hidden, int64_t ffn) {
  const auto matrix = [&](const char* name, int64_t out, Linear::Spec spec) {
    spec.in = hidden, spec.out = out, spec.bias = spec_.bias;
    Linear* linear = &child<Linear>(name, spec);
    linear->result_is(ResultKind::FeedForward);
    return linear;
  };
  const FeedForwardNames names = named(spec_.kind, spec_.names);
  if (spec_.kind == FeedForwardKind::FusedGate) return {matrix(names.up, 2 * ffn, {})};
  if (spec_.kind == FeedForwardKind::Plain) return {matrix(names.up, ffn, {.split = Split::Out})};
  return {matrix(names.gate, ffn, {.split = Split::Out}), matrix(names.up, ffn, {.split = Split::Out})};
}

Mlp::Mlp(int64_t hidden, int64_t ffn, Spec s)
    : spec_(s),
      gate_up_(inner(hidden, ffn)),
      down_(child<Linear>(named(s.kind, s.names).down,
                          Linear::Spec{.in = ffn, .out = hidden, .bias = s.bias || s.down_bias, .split = Split::In})) {
  if (s.act == Activation::Xielu) xielu_ = &child<Xielu>("act_fn");
}

at::Tensor Mlp::plain(const at::Tensor& inner_TF) const {
  return xielu_ ? (*xielu_)(inner_TF) : activated(spec_.act, inner_TF.contiguous());
}

at::Tensor Mlp::operator()(const at::Tensor& x_TD, const Step& s) const {
  std::vector<at::Tensor> parts = gate_up_(x_TD, s);
  if (spec_.kind == FeedForwardKind::Plain) return down_(plain(parts[0]), s);
  if (spec_.kind == FeedForwardKind::FusedGate) parts = parts[0].chunk(2, -1);
  if (spec_.gate_last) std::swap(parts[0], parts[1]);
  if (spec_.gate_scale != 1) parts[0] = parts[0] * spec_.gate_scale;
  if (spec_.sparsity > 0) parts[0] = above_most(parts[0], spec_.sparsity);
  const at::Tensor y_TD = down_(gated(spec_.act, parts[0], parts[1], spec_.limit), s);
  return spec_.out_scale == 1 ? y_TD : y_TD * spec_.out_scale;
}

}  // namespace apus
