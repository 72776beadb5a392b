// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N heads, H head size.
#include "nn/turned_lightning.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <tuple>

#include "nn/steady.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/ops.h"

namespace apus {

TurnedLightning::TurnedLightning(const TurnedLightningForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      qkv_(child<Linear>("qkv_proj", Linear::Spec{.in = place.hidden, .out = 3 * f.width(), .bias = f.qkv_bias})),
      q_norm_(f.qk_norm ? &child<Norm>("q_norm", f.head_dim, NormSpec{.eps = place.eps}) : nullptr),
      k_norm_(f.qk_norm ? &child<Norm>("k_norm", f.head_dim, NormSpec{.eps = place.eps}) : nullptr),
      gate_(child<Linear>("g_proj", Linear::Spec{.in = place.hidden, .out = f.width()})),
      norm_(child<GroupNorm>("g_norm", f.width(), f.norm_groups, place.eps)),
      out_(child<Linear>("o_proj", Linear::Spec{.in = f.width(), .out = place.hidden, .bias = f.out_bias})) {}

// The first layer's is a little above its slopes: layers are counted from the second.
at::Tensor TurnedLightning::decay(at::TensorOptions options) const {
  const double behind = static_cast<double>(place_.layer - 1), last = static_cast<double>(place_.layers - 1);
  std::vector<double> decay;
  for (const double slope : form_.slopes) decay.push_back(-slope * (1 - behind / last + 1e-5));
  return at::tensor(decay, at::kDouble).to(options.device(), c10::typeMetaToScalarType(options.dtype()));
}

at::Tensor TurnedLightning::operator()(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0), h = form_.head_dim;
  const auto made = qkv_(x_TD, s).view({tokens, 3, form_.heads, h}).unbind(1);
  at::Tensor q = made[0].contiguous(), k = made[1].contiguous();
  if (q_norm_) q = (*q_norm_)(q), k = (*k_norm_)(k);
  const Turn& turn = s.turns[static_cast<size_t>(place_.turn)];
  const auto& share = training_of(s).tokens;
  const auto own = [&](const at::Tensor& x_T) { return share ? share->own_of_attended(x_T) : x_T; };
  std::tie(q, k) = ops::rope(q, k, own(turn.cos), own(turn.sin));
  q = widened(q);
  const at::Tensor y = scanned({.q_TGK = q / std::sqrt(static_cast<double>(h)),
                                .k_TGK = widened(k),
                                .v_TNV = widened(made[2]).contiguous(),
                                .decay_TN = decay(q.options()).expand({tokens, -1})},
                               s);
  const at::Tensor gate = steady_sigmoid(widened(gate_(x_TD, s)));
  return out_((norm_(y.reshape({tokens, -1})) * gate).to(x_TD.scalar_type()), s);
}

}  // namespace apus
