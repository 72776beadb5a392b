// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

#include "ops/ops.h"

namespace apus {

namespace {
at::Tensor activated(Activation act, const at::Tensor& x) {
  switch (act) {
    case Activation::Gelu:
      return at::gelu(x);
    case Activation::GeluTanh:
      return at::gelu(x, "tanh");
    case Activation::Relu:
      return at::relu(x);
    case Activation::Silu:
      break;
  }
  return at::silu(x);
}
}  // namespace

// Silu's is one fused operator; the others are rare and composed. gate may be a slice of a wider tensor, of which
// libtorch's gradient of gelu makes nonsense on some processors.
at::Tensor gated(Activation act, const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  if (act == Activation::Silu) return ops::swiglu(gate_TF, up_TF);
  return activated(act, act == Activation::Relu ? gate_TF : gate_TF.contiguous()) * up_TF;
}

std::vector<Linear*> Mlp::inner(int64_t hidden, int64_t ffn) {
  const auto matrix = [&](const char* name, int64_t out, Linear::Spec spec) {
    spec.in = hidden, spec.out = out, spec.bias = spec_.bias;
    Linear* linear = &child<Linear>(name, spec);
    linear->result_is(ResultKind::FeedForward);
    return linear;
  };
  const FeedForwardNames names = named(spec_.kind, spec_.names);
  switch (spec_.kind) {
    case FeedForwardKind::FusedGate:
      return {matrix(names.in, 2 * ffn, {})};
    case FeedForwardKind::Plain:
      return {matrix(names.in, ffn, {.split = Split::Out})};
    case FeedForwardKind::Gated:
      break;
  }
  return {matrix(names.in, ffn, {.split = Split::Out}), matrix(names.up, ffn, {.split = Split::Out})};
}

Mlp::Mlp(int64_t hidden, int64_t ffn, Spec s)
    : spec_(s),
      gate_up_(inner(hidden, ffn)),
      down_(child<Linear>(named(s.kind, s.names).down,
                          Linear::Spec{.in = ffn, .out = hidden, .bias = s.bias, .split = Split::In})) {}

at::Tensor Mlp::operator()(const at::Tensor& x_TD, const Step& s) const {
  std::vector<at::Tensor> parts = gate_up_(x_TD, s);
  if (spec_.kind == FeedForwardKind::Plain) return down_(activated(spec_.act, parts[0].contiguous()), s);
  if (spec_.kind == FeedForwardKind::FusedGate) parts = parts[0].chunk(2, -1);
  if (spec_.gate_scale != 1) parts[0] = parts[0] * spec_.gate_scale;
  const at::Tensor y_TD = down_(gated(spec_.act, parts[0], parts[1]), s);
  return spec_.out_scale == 1 ? y_TD : y_TD * spec_.out_scale;
}

}  // namespace apus
