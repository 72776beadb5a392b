// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N heads, V head size, G groups of heads, K state size.
#include "nn/mamba.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "nn/steady.h"
#include "ops/ops.h"

namespace apus {

namespace {
// Of what in_proj makes: gate, values, keys, queries, steps.
std::array<int64_t, 5> part_sizes(const MambaForm& f) {
  return {f.inner(), f.inner(), f.groups * f.state, f.groups * f.state, f.heads};
}
}  // namespace

Mamba::Mamba(const MambaForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      speed_(param("A_log", {f.heads})),
      pass_(param("D", {f.heads})),
      step_bias_(param("dt_bias", {f.heads})),
      conv_(child<CausalConv>("conv1d", place.layer, f.mixed(), f.taps, f.conv_bias)),
      in_(child<Linear>("in_proj",
                        Linear::Spec{.in = place.hidden, .out = f.inner() + f.mixed() + f.heads, .bias = f.in_bias})),
      norm_(f.norm == MambaForm::Norm::None ? nullptr : &child<GroupNorm>("norm", f.inner(), f.norm_groups, place.eps)),
      out_(child<Linear>("out_proj", Linear::Spec{.in = f.inner(), .out = place.hidden, .bias = f.out_bias})) {}

at::Tensor Mamba::scaled(const at::Tensor& made) const {
  const auto& scale = form_.part_scale;
  if (std::all_of(scale.begin(), scale.end(), [](double each) { return each == 1; })) return made;
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < scale.size(); ++i) parts.push_back(at::full({part_sizes(form_)[i]}, scale[i], made.options()));
  return made * at::cat(parts, 0);
}

at::Tensor Mamba::gated(const at::Tensor& y, const at::Tensor& gate) const {
  if (form_.norm == MambaForm::Norm::BeforeGate) return ops::swiglu(gate, (*norm_)(y));
  const at::Tensor behind = ops::swiglu(gate, y);
  return norm_ ? (*norm_)(behind) : behind;
}

at::Tensor Mamba::operator()(const at::Tensor& x_TD, const Step& s) const {
  const MambaForm& f = form_;
  const int64_t tokens = x_TD.size(0), keys = f.groups * f.state;
  const auto made = scaled(widened(in_(f.in_scale == 1 ? x_TD : x_TD * f.in_scale, s)))
                        .split_with_sizes({f.inner(), f.mixed(), f.heads}, 1);
  const auto mixed = conv_(made[1], s).split_with_sizes({f.inner(), keys, keys}, 1);
  const at::Tensor value = mixed[0].reshape({tokens, f.heads, f.head_dim});
  at::Tensor step = steady_softplus(made[2] + widened(step_bias_.data));
  if (f.least_step > 0) step = step.clamp_min(f.least_step);
  const at::Tensor y = scanned({.q_TGK = mixed[2].reshape({tokens, f.groups, f.state}),
                                .k_TGK = mixed[1].reshape({tokens, f.groups, f.state}),
                                .v_TNV = value * step.unsqueeze(-1),
                                .decay_TN = step * -widened(speed_.data).exp()},
                               s) +
                       value * widened(pass_.data).unsqueeze(-1);
  const at::Tensor out = out_(gated(y.reshape({tokens, -1}), made[0].contiguous()).to(x_TD.scalar_type()), s);
  return f.out_scale == 1 ? out : out * f.out_scale;
}

}  // namespace apus
