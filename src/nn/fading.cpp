// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N channels, B blocks of W channels.
#include "nn/fading.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/steady.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

Fading::Fading(const FadingForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      opening_(child<Linear>("linear_y", Linear::Spec{.in = place.hidden, .out = f.width, .bias = true})),
      in_(child<Linear>("linear_x", Linear::Spec{.in = place.hidden, .out = f.width, .bias = true})),
      out_(child<Linear>("linear_out", Linear::Spec{.in = f.width, .out = place.hidden, .bias = true})),
      conv_(child<CausalConv>("conv_1d", place.layer, f.width, f.taps, /*bias=*/true, /*silu=*/false)),
      speed_(param("rg_lru.recurrent_param", {f.width})),
      takes_weight_(param("rg_lru.input_gate_weight", {f.blocks, f.width / f.blocks, f.width / f.blocks})),
      takes_bias_(param("rg_lru.input_gate_bias", {f.blocks, f.width / f.blocks})),
      fades_weight_(param("rg_lru.recurrent_gate_weight", {f.blocks, f.width / f.blocks, f.width / f.blocks})),
      fades_bias_(param("rg_lru.recurrent_gate_bias", {f.blocks, f.width / f.blocks})) {}

at::Tensor Fading::gate(const at::Tensor& x_TN, const Param& weight, const Param& bias) const {
  const at::Tensor x_TBW = x_TN.view({x_TN.size(0), form_.blocks, -1});
  const at::Tensor y_TBW = each_head(x_TBW, widened(weight.data).transpose(1, 2).contiguous()) + widened(bias.data);
  return steady_sigmoid(y_TBW.reshape(x_TN.sizes()));
}

at::Tensor Fading::operator()(const at::Tensor& x_TD, const Step& s) const {
  const double kFastest = 8;     // how often a gate that is wide open multiplies the logarithm of the speed
  const double kLeast = 2.5e-7;  // under the root: below it the original bounds the gradient
  const at::Tensor x_TN = conv_(in_(x_TD, s), s);
  const at::Tensor decay_TN =
      gate(x_TN, fades_weight_, fades_bias_) * steady_softplus(widened(speed_.data)) * -kFastest;
  const at::Tensor room_TN = steady_expm1(decay_TN * 2).neg().clamp_min(kLeast).sqrt();
  // A text's first token is taken in whole.
  const auto& share = training_of(s).tokens;
  const at::Tensor position_T = share ? share->narrowed(s.position) : s.position;
  const at::Tensor first_T1 = (position_T == 0).unsqueeze(1).to(x_TN.device());
  const at::Tensor taken_TN =
      x_TN * gate(x_TN, takes_weight_, takes_bias_) * at::where(first_T1, at::ones_like(room_TN), room_TN);
  const at::Tensor one_T11 = at::ones_like(taken_TN.narrow(1, 0, 1)).unsqueeze(1).detach();
  const at::Tensor y_TN =
      scanned({.q_TGK = one_T11, .k_TGK = one_T11, .v_TNV = taken_TN.unsqueeze(-1), .decay_TN = decay_TN.unsqueeze(-1)},
              s)
          .squeeze(-1);
  return out_(y_TN.to(x_TD.scalar_type()) * activated(form_.act, opening_(x_TD, s)), s);
}

}  // namespace apus
