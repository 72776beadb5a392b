// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include "ops/ops.h"

namespace apus {

// Silu's is one fused operator; the others are rare and composed. gate may be a slice of a wider tensor, of which
// libtorch's gradient of gelu makes nonsense on some processors.
at::Tensor gated(Activation act, const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  switch (act) {
    case Activation::Gelu:
      return at::gelu(gate_TF.contiguous()) * up_TF;
    case Activation::GeluTanh:
      return at::gelu(gate_TF.contiguous(), "tanh") * up_TF;
    case Activation::Relu:
      return at::relu(gate_TF) * up_TF;
    case Activation::Silu:
      break;
  }
  return ops::swiglu(gate_TF, up_TF);
}

Mlp::Mlp(int64_t hidden, int64_t ffn, Spec s)
    : gate_(child<Linear>("gate_proj", Linear::Spec{.in = hidden, .out = ffn, .bias = s.bias, .split = Split::Out})),
      up_(child<Linear>("up_proj", Linear::Spec{.in = hidden, .out = ffn, .bias = s.bias, .split = Split::Out})),
      down_(child<Linear>("down_proj", Linear::Spec{.in = ffn, .out = hidden, .bias = s.bias, .split = Split::In})),
      gate_up_({&gate_, &up_}),
      spec_(s) {
  gate_.result_is(ResultKind::FeedForward), up_.result_is(ResultKind::FeedForward);
}

at::Tensor Mlp::operator()(const at::Tensor& x_TD, const Step& s) const {
  const auto gate_up = gate_up_(x_TD, s);
  return down_(gated(spec_.act, gate_up[0], gate_up[1]), s);
}

}  // namespace apus
