// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N heads, H head size.
#include "nn/lightning_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "nn/steady.h"
#include "ops/ops.h"

namespace apus {

namespace {
// Its own norm's, whatever config.json says.
constexpr double kEps = 1e-6;
}  // namespace

LightningAttention::LightningAttention(const LightningForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      qkv_(child<Linear>("qkv_proj", Linear::Spec{.in = place.hidden, .out = 3 * f.heads * f.head_dim})),
      gate_(child<Linear>("output_gate", Linear::Spec{.in = place.hidden, .out = f.heads * f.head_dim})),
      out_(child<Linear>("out_proj", Linear::Spec{.in = f.heads * f.head_dim, .out = place.hidden})),
      norm_(child<Norm>("norm", f.heads * f.head_dim, NormSpec{.eps = kEps})) {}

at::Tensor LightningAttention::decay(at::TensorOptions options) const {
  const double depth = static_cast<double>(place_.layer) / (static_cast<double>(place_.layers - 1) + form_.more_layers);
  std::vector<double> decay;
  for (const double slope : form_.slopes) decay.push_back(-slope * (1 - depth + 1e-5));
  return at::tensor(decay, at::kDouble).to(options.device(), c10::typeMetaToScalarType(options.dtype()));
}

at::Tensor LightningAttention::operator()(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0), h = form_.head_dim;
  const at::Tensor qkv = silu_of(widened(qkv_(x_TD, s))).view({tokens, form_.heads, 3 * h});
  const at::Tensor y = scanned({.q_TGK = qkv.narrow(2, 0, h),
                                .k_TGK = qkv.narrow(2, h, h),
                                .v_TNV = qkv.narrow(2, 2 * h, h),
                                .decay_TN = decay(qkv.options()).expand({tokens, -1})},
                               s);
  const at::Tensor gate = steady_sigmoid(widened(gate_(x_TD, s)));
  return out_((norm_(y.reshape({tokens, -1})) * gate).to(x_TD.scalar_type()), s);
}

}  // namespace apus
