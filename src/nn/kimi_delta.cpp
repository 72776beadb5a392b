// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N heads, H head size.
#include "nn/kimi_delta.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <cmath>

#include "base/error.h"
#include "nn/delta_net.h"
#include "nn/steady.h"
#include "ops/ops.h"

namespace apus {

KimiDelta::KimiDelta(const KimiDeltaForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      speed_(param("A_log", f.at_once ? std::vector<int64_t>{f.heads} : std::vector<int64_t>{1, 1, f.heads, 1})),
      step_bias_(param("dt_bias", {f.width()})),
      q_(linear("q_proj", place.hidden, f.width())),
      k_(linear("k_proj", place.hidden, f.width())),
      v_(linear("v_proj", place.hidden, f.width())),
      q_taps_(taps("q_conv1d")),
      k_taps_(taps("k_conv1d")),
      v_taps_(taps("v_conv1d")),
      step_b_(by_way_of("f", step_a_)),
      gate_b_(by_way_of("g", gate_a_)),
      share_(linear("b_proj", place.hidden, f.heads)),
      norm_(child<Norm>("o_norm", f.head_dim, NormSpec{.eps = place.eps})),
      out_(linear("o_proj", f.width(), place.hidden)) {}

Linear& KimiDelta::by_way_of(const char* name, Linear*& small) {
  if (form_.at_once) return linear(str(name, "_proj").c_str(), place_.hidden, form_.width());
  small = &linear(str(name, "_a_proj").c_str(), place_.hidden, form_.head_dim);
  return linear(str(name, "_b_proj").c_str(), form_.head_dim, form_.width());
}

at::Tensor KimiDelta::decay(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0), heads = form_.heads;
  const at::Tensor made = widened(step_b_(step_a_ ? (*step_a_)(x_TD, s) : x_TD, s)) + widened(step_bias_.data);
  const at::Tensor speed = widened(speed_.data).view({1, heads, 1}).exp();
  if (form_.strongest < 0) return steady_sigmoid(made.view({tokens, heads, -1}) * speed) * form_.strongest;
  return steady_softplus(made).view({tokens, heads, -1}) * -speed;
}

at::Tensor KimiDelta::operator()(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0), heads = form_.heads, h = form_.head_dim;
  const at::Tensor weight = at::cat({q_taps_.weight.data, k_taps_.weight.data, v_taps_.weight.data}, 0).select(1, 0);
  const auto mixed =
      silu_of(convolved(at::cat({q_(x_TD, s), k_(x_TD, s), v_(x_TD, s)}, 1), weight, {}, place_.layer, s))
          .view({tokens, 3, heads, h})
          .unbind(1);
  const at::Tensor y = scanned({.q_TGK = at_unit_length(mixed[0], 1 / std::sqrt(static_cast<double>(h))),
                                .k_TGK = at_unit_length(mixed[1], 1),
                                .v_TNV = mixed[2].contiguous(),
                                .decay_TN = decay(x_TD, s),
                                .share_TN = steady_sigmoid(widened(share_(x_TD, s)))},
                               s);
  const at::Tensor gate = steady_sigmoid(widened(gate_b_(gate_a_ ? (*gate_a_)(x_TD, s) : x_TD, s)));
  const at::Tensor gated = norm_(y.contiguous()) * gate.view({tokens, heads, h});
  return out_(gated.reshape({tokens, -1}).to(x_TD.scalar_type()), s);
}

}  // namespace apus
