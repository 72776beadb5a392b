// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N channels, K state size.
#include "nn/selective_mamba.h"

#include <ATen/TensorOperators.h>

#include "nn/steady.h"
#include "ops/ops.h"

namespace apus {

SelectiveMamba::SelectiveMamba(const SelectiveForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      speed_(param("A_log", {f.inner, f.state})),
      pass_(param("D", {f.inner})),
      conv_(child<CausalConv>("conv1d", place.layer, f.inner, f.taps, f.conv_bias)),
      in_(child<Linear>("in_proj", Linear::Spec{.in = place.hidden, .out = 2 * f.inner, .bias = f.bias})),
      parts_(child<Linear>("x_proj", Linear::Spec{.in = f.inner, .out = f.rank + 2 * f.state})),
      steps_(child<Linear>("dt_proj", Linear::Spec{.in = f.rank, .out = f.inner, .bias = true})),
      out_(child<Linear>("out_proj", Linear::Spec{.in = f.inner, .out = place.hidden, .bias = f.bias})),
      step_norm_(norm("dt_layernorm", f.rank)),
      key_norm_(norm("b_layernorm", f.state)),
      query_norm_(norm("c_layernorm", f.state)) {}

Norm* SelectiveMamba::norm(const char* name, int64_t size) {
  if (form_.norm != SelectiveForm::Norm::Weighed) return nullptr;
  return &child<Norm>(name, size, NormSpec{.eps = form_.eps});
}

at::Tensor SelectiveMamba::normed(const Norm* norm, const at::Tensor& x) const {
  if (form_.norm == SelectiveForm::Norm::None) return x;
  if (norm) return (*norm)(x.contiguous());
  return rms_alone(x.contiguous(), form_.eps);
}

at::Tensor SelectiveMamba::operator()(const at::Tensor& x_TD, const Step& s) const {
  const SelectiveForm& f = form_;
  const auto type = x_TD.scalar_type();
  const auto made = in_(x_TD, s).chunk(2, 1);
  const at::Tensor value_TN = conv_(made[0], s);
  const auto parts = parts_(value_TN.to(type), s).split_with_sizes({f.rank, f.state, f.state}, 1);
  const at::Tensor key = widened(normed(key_norm_, parts[1])), query = widened(normed(query_norm_, parts[2]));
  const at::Tensor step_TN = steady_softplus(widened(steps_(normed(step_norm_, parts[0]).contiguous(), s)));
  const at::Tensor y = scanned({.q_TGK = query.unsqueeze(1),
                                .k_TGK = key.unsqueeze(1),
                                .v_TNV = (value_TN * step_TN).unsqueeze(-1),
                                .decay_TN = step_TN},
                               s, -widened(speed_.data).exp())
                           .squeeze(-1) +
                       value_TN * widened(pass_.data);
  return out_(ops::swiglu(widened(made[1]).contiguous(), y).to(type), s);
}

}  // namespace apus
