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
constexpr double kApartEps = 1e-5;  // whatever config.json says
}  // namespace

at::Tensor at_unit_length(const at::Tensor& x_TGK, double scale) {
  constexpr double kEps = 1e-6;  // beside the sum of squares
  const auto size = static_cast<double>(x_TGK.size(2));
  return ops::rms_norm(x_TGK.contiguous(), at::full({x_TGK.size(2)}, scale / std::sqrt(size), x_TGK.options()),
                       kEps / size);
}

DeltaNet::DeltaNet(const DeltaForm& f, const Place& place)
    : StateLayer(place),
      form_(f),
      speed_(param("A_log", {f.value_heads})),
      step_bias_(param("dt_bias", {f.value_heads})),
      in_(input_matrices(place.hidden)),
      taps_(convolutions()),
      norm_(child<Norm>(f.all_apart ? "o_norm" : "norm", f.value_dim,
                        NormSpec{.eps = f.all_apart ? kApartEps : place.eps})),
      out_(child<Linear>(f.all_apart ? "o_proj" : "out_proj", Linear::Spec{.in = f.values(), .out = place.hidden})) {}

std::vector<Taps*> DeltaNet::convolutions() {
  const DeltaForm& f = form_;
  if (!f.all_apart) return {};
  return {&child<Taps>("q_conv1d", f.keys(), f.taps), &child<Taps>("k_conv1d", f.keys(), f.taps),
          &child<Taps>("v_conv1d", f.values(), f.taps)};
}

at::Tensor DeltaNet::mixed(const at::Tensor& x_TC, const Step& s) const {
  if (conv_) return (*conv_)(x_TC, s);
  const at::Tensor weight = at::cat({taps_[0]->weight.data, taps_[1]->weight.data, taps_[2]->weight.data}, 0);
  return silu_of(convolved(x_TC, weight.select(1, 0), {}, place_.layer, s));
}

std::vector<Linear*> DeltaNet::input_matrices(int64_t hidden) {
  const DeltaForm& f = form_;
  std::vector<Linear*> all;
  if (!f.all_apart) conv_ = &child<CausalConv>("conv1d", place_.layer, state_shape(f).channels, f.taps, false);
  const auto matrix = [&](const char* name, int64_t out) {
    all.push_back(&child<Linear>(name, Linear::Spec{.in = hidden, .out = out}));
  };
  if (f.all_apart) {
    matrix("q_proj", f.keys()), matrix("k_proj", f.keys()), matrix("v_proj", f.values());
    matrix("g_proj", f.values()), matrix("b_proj", f.value_heads), matrix("a_proj", f.value_heads);
  } else if (f.apart) {
    matrix("in_proj_qkv", 2 * f.keys() + f.values()), matrix("in_proj_z", f.values());
    matrix("in_proj_b", f.value_heads), matrix("in_proj_a", f.value_heads);
  } else {
    matrix("in_proj_qkvz", 2 * (f.keys() + f.values())), matrix("in_proj_ba", 2 * f.value_heads);
  }
  return all;
}

DeltaNet::Made DeltaNet::made(const at::Tensor& x_TD, const Step& s) const {
  const DeltaForm& f = form_;
  if (f.all_apart)
    return {at::cat({(*in_[0])(x_TD, s), (*in_[1])(x_TD, s), (*in_[2])(x_TD, s)}, 1), (*in_[3])(x_TD, s),
            (*in_[4])(x_TD, s), (*in_[5])(x_TD, s)};
  if (f.apart) return {(*in_[0])(x_TD, s), (*in_[1])(x_TD, s), (*in_[2])(x_TD, s), (*in_[3])(x_TD, s)};
  // Key head by key head: query, key, its value heads' values and gates; likewise their shares and steps.
  const int64_t tokens = x_TD.size(0), wide = f.value_heads / f.key_heads * f.value_dim;
  const auto flat = [&](const at::Tensor& x) { return x.reshape({tokens, -1}); };
  const auto rows =
      (*in_[0])(x_TD, s).view({tokens, f.key_heads, -1}).split_with_sizes({f.key_dim, f.key_dim, wide, wide}, 2);
  const auto gates = (*in_[1])(x_TD, s).view({tokens, f.key_heads, -1}).chunk(2, 2);
  return {at::cat({flat(rows[0]), flat(rows[1]), flat(rows[2])}, 1), flat(rows[3]), flat(gates[0]), flat(gates[1])};
}

at::Tensor DeltaNet::operator()(const at::Tensor& x_TD, const Step& s) const {
  const DeltaForm& f = form_;
  const int64_t tokens = x_TD.size(0);
  const Made in = made(x_TD, s);
  const auto mixed = this->mixed(in.mixed, s).split_with_sizes({f.keys(), f.keys(), f.values()}, 1);
  const at::Tensor q = at_unit_length(mixed[0].reshape({tokens, f.key_heads, f.key_dim}),
                                      1 / std::sqrt(static_cast<double>(f.key_dim))),
                   k = at_unit_length(mixed[1].reshape({tokens, f.key_heads, f.key_dim}), 1);
  const at::Tensor decay = steady_softplus(widened(in.step) + widened(step_bias_.data)) * -widened(speed_.data).exp();
  const at::Tensor y = scanned({.q_TGK = q,
                                .k_TGK = k,
                                .v_TNV = mixed[2].reshape({tokens, f.value_heads, f.value_dim}),
                                .decay_TN = decay,
                                .share_TN = steady_sigmoid(widened(in.share)) * f.share_scale},
                               s);
  const at::Tensor gated =
      ops::swiglu(widened(in.gate).reshape({tokens, f.value_heads, f.value_dim}), norm_(y.contiguous()));
  return out_(gated.reshape({tokens, -1}).to(x_TD.scalar_type()), s);
}

}  // namespace apus
