// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, G key heads, N value heads, K key size, V value size.
#include "nn/delta_net.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "nn/steady.h"
#include "ops/ops.h"

namespace apus {

namespace {
// `scale` times each head's vector of length one.
at::Tensor at_unit_length(const at::Tensor& x_TGK, double scale) {
  constexpr double kEps = 1e-6;  // beside the sum of squares
  const auto size = static_cast<double>(x_TGK.size(2));
  return ops::rms_norm(x_TGK.contiguous(), at::full({x_TGK.size(2)}, scale / std::sqrt(size), x_TGK.options()),
                       kEps / size);
}
}  // namespace

DeltaNet::DeltaNet(const DeltaForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      speed_(param("A_log", {f.value_heads})),
      step_bias_(param("dt_bias", {f.value_heads})),
      conv_(child<CausalConv>("conv1d", place.layer, state_shape(f).channels, f.taps, false)),
      in_(child<Linear>(
          "in_proj_qkvz",
          Linear::Spec{.in = place.hidden, .out = 2 * (f.key_heads * f.key_dim + f.value_heads * f.value_dim)})),
      gates_(child<Linear>("in_proj_ba", Linear::Spec{.in = place.hidden, .out = 2 * f.value_heads})),
      norm_(child<Norm>("norm", f.value_dim, NormSpec{.eps = place.eps})),
      out_(child<Linear>("out_proj", Linear::Spec{.in = f.value_heads * f.value_dim, .out = place.hidden})) {}

at::Tensor DeltaNet::operator()(const at::Tensor& x_TD, const Step& s) const {
  const DeltaForm& f = form_;
  const int64_t tokens = x_TD.size(0), each = f.value_heads / f.key_heads, keys = f.key_heads * f.key_dim,
                values = f.value_heads * f.value_dim, wide = each * f.value_dim;
  // Key head by key head: query, key, its value heads' values and gates; likewise their shares and steps.
  const auto made =
      in_(x_TD, s).view({tokens, f.key_heads, -1}).split_with_sizes({f.key_dim, f.key_dim, wide, wide}, 2);
  const auto gates = widened(gates_(x_TD, s)).view({tokens, f.key_heads, -1}).chunk(2, 2);
  const auto flat = [&](const at::Tensor& x) { return x.reshape({tokens, -1}); };
  const auto mixed =
      conv_(at::cat({flat(made[0]), flat(made[1]), flat(made[2])}, 1), s).split_with_sizes({keys, keys, values}, 1);
  const at::Tensor q = at_unit_length(mixed[0].reshape({tokens, f.key_heads, f.key_dim}),
                                      1 / std::sqrt(static_cast<double>(f.key_dim))),
                   k = at_unit_length(mixed[1].reshape({tokens, f.key_heads, f.key_dim}), 1);
  const at::Tensor decay = steady_softplus(flat(gates[1]) + widened(step_bias_.data)) * -widened(speed_.data).exp();
  const at::Tensor y = scanned({.q_TGK = q,
                                .k_TGK = k,
                                .v_TNV = mixed[2].reshape({tokens, f.value_heads, f.value_dim}),
                                .decay_TN = decay,
                                .share_TN = steady_sigmoid(flat(gates[0]))},
                               s);
  const at::Tensor gated =
      ops::swiglu(widened(made[3]).reshape({tokens, f.value_heads, f.value_dim}), norm_(y.contiguous()));
  return out_(flat(gated).to(x_TD.scalar_type()), s);
}

}  // namespace apus
