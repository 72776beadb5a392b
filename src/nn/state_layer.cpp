// SPDX-License-Identifier: Apache-2.0
#include "nn/state_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "nn/delta_net.h"
#include "nn/fading.h"
#include "nn/kimi_delta.h"
#include "nn/lightning_attention.h"
#include "nn/mamba.h"
#include "nn/selective_mamba.h"
#include "nn/short_conv.h"
#include "nn/state_share.h"
#include "nn/steady.h"
#include "nn/training_step.h"
#include "nn/turned_lightning.h"
#include "ops/ops.h"
#include "ops/steady_rows.h"

namespace apus {

namespace {
std::vector<int64_t> lengths_of(const Step& s) {
  require(!training_of(s).key_K.defined(), Fault::Usage,
          "layers with a state read a sequence from its begin: answers cannot go on from one that they share "
          "(--share_prefix true)");
  return {s.length_q.begin(), s.length_q.end()};
}
}  // namespace

at::Tensor widened(const at::Tensor& x) { return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }
at::Tensor silu_of(const at::Tensor& x) {
  const bool trained = x.requires_grad() && at::GradMode::is_enabled() && !ops::steady_rows();
  return trained ? at::silu(x) : ops::swiglu(x, at::ones_like(x));
}

namespace {
// Chunks give the gradient; the sums are an engine's, token by token.
at::Tensor scanned_in_steps(const ops::StateInputs& in, const std::vector<int64_t>& lengths) {
  const auto sequences = static_cast<int64_t>(lengths.size());
  const auto value = [&] {
    const at::NoGradGuard no_gradient;
    const at::Tensor state = at::zeros({sequences, in.v_TNV.size(1), in.k_TGK.size(2), in.v_TNV.size(2)},
                                       in.v_TNV.options()),
                     seat_S = at::arange(sequences, in.v_TNV.options().dtype(at::kLong));
    return ops::state_scan_on({in.q_TGK.detach(), in.k_TGK.detach(), in.v_TNV.detach(), in.decay_TN.detach(),
                               in.share_TN.defined() ? in.share_TN.detach() : in.share_TN},
                              lengths, seat_S, state);
  };
  return with_gradient_of(ops::state_scan(in, lengths), value());
}

ops::StateInputs with_speed(ops::StateInputs in, const at::Tensor& speed_NK) {
  if (speed_NK.defined()) in.decay_TN = in.decay_TN.unsqueeze(-1) * speed_NK;
  return in;
}
at::Tensor scanned_whole(const ops::StateInputs& in, const std::vector<int64_t>& lengths) {
  return ops::steady_rows() ? scanned_in_steps(in, lengths) : ops::state_scan(in, lengths);
}
}  // namespace

at::Tensor StateLayer::scanned(const ops::StateInputs& in, const Step& s, const at::Tensor& speed_NK) const {
  const std::vector<int64_t> lengths = lengths_of(s);
  if (const auto& tokens = training_of(s).tokens) {
    const ScanShare share(*tokens, in);
    const ops::StateInputs all = with_speed(share.all_tokens(in), share.own_heads(speed_NK));
    return share.own_tokens(share.none() ? all.v_TNV : scanned_whole(all, lengths));
  }
  if (!s.cache) return scanned_whole(with_speed(in, speed_NK), lengths);
  require(s.seat.defined(), Fault::Bug, "a step with a cache does not say where its sequences' states lie");
  return ops::state_scan_on(with_speed(in, speed_NK), lengths, s.seat, s.cache->state(place_.layer));
}

CausalConv::CausalConv(int64_t layer, int64_t channels, int64_t taps, bool bias, bool silu)
    : layer_(layer), weight_(param("weight", {channels, 1, taps})), silu_(silu) {
  if (bias) bias_ = &param("bias", {channels});
}

at::Tensor convolved(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C, int64_t layer,
                     const Step& s) {
  const std::vector<int64_t> lengths = lengths_of(s);
  const at::Tensor x = widened(x_TC), weight = widened(weight_CJ), bias = bias_C.defined() ? widened(bias_C) : bias_C;
  if (const auto& tokens = training_of(s).tokens) return convolved_with_those_before(*tokens, x, weight, bias);
  return s.cache && weight.size(1) > 1 ? ops::causal_conv_on(x, weight, bias, lengths, s.seat, s.cache->before(layer))
                                       : ops::causal_conv(x, weight, bias, lengths);
}

at::Tensor CausalConv::operator()(const at::Tensor& x_TC, const Step& s) const {
  const at::Tensor y = convolved(x_TC, weight_.data.select(1, 0), bias_ ? bias_->data : at::Tensor(), layer_, s);
  return silu_ ? silu_of(y) : y;
}

std::unique_ptr<Mixer> make_state_layer(const StateForm& form, const StateLayer::Place& place) {
  if (const auto* delta = std::get_if<DeltaForm>(&form)) return std::make_unique<DeltaNet>(*delta, place);
  if (const auto* mamba = std::get_if<MambaForm>(&form)) return std::make_unique<Mamba>(*mamba, place);
  if (const auto* selective = std::get_if<SelectiveForm>(&form))
    return std::make_unique<SelectiveMamba>(*selective, place);
  if (const auto* conv = std::get_if<ConvForm>(&form)) return std::make_unique<ShortConv>(*conv, place);
  if (const auto* kimi = std::get_if<KimiDeltaForm>(&form)) return std::make_unique<KimiDelta>(*kimi, place);
  if (const auto* turned = std::get_if<TurnedLightningForm>(&form))
    return std::make_unique<TurnedLightning>(*turned, place);
  if (const auto* fading = std::get_if<FadingForm>(&form)) return std::make_unique<Fading>(*fading, place);
  return std::make_unique<LightningAttention>(std::get<LightningForm>(form), place);
}

}  // namespace apus
