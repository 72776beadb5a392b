// SPDX-License-Identifier: Apache-2.0
#include "models/own_guess_head.h"

#include <ATen/ops/cat.h>

#include "models/spec/guess_form.h"

namespace apus {

OwnGuessHead::OwnGuessHead(const DecoderSpec& spec, const GuessForm& form)
    : OwnGuessHead(spec, one_layer(spec, form.like), form) {}

OwnGuessHead::OwnGuessHead(const DecoderSpec& spec, const DecoderSpec& one, const GuessForm& form)
    : shape_(one.shape),
      state_first_(form.state_first),
      token_norm_(child<Norm>(form.token_norm, spec.shape.hidden, spec.norm)),
      state_norm_(child<Norm>(form.state_norm, spec.shape.hidden, spec.norm)),
      join_(child<Linear>(form.join, Linear::Spec{.in = 2 * spec.shape.hidden, .out = spec.shape.hidden})),
      layer_(child<DecoderLayer>(form.layer, one, 0)),
      end_norm_(child<Norm>(form.end_norm, spec.shape.hidden, spec.norm)) {}

at::Tensor OwnGuessHead::states(const Model& model, const Inputs& next, const at::Tensor& state_TD, Step& s) const {
  s.position = model.positions(next, s);
  model.begin(s);
  return trained_states(model.embed(next, s), state_TD, s);
}

at::Tensor OwnGuessHead::trained_states(const at::Tensor& token_TD, const at::Tensor& state_TD, const Step& s) const {
  const at::Tensor next_TD = token_norm_(token_TD), before_TD = state_norm_(state_TD);
  const at::Tensor both_TD =
      at::cat(state_first_ ? at::TensorList{before_TD, next_TD} : at::TensorList{next_TD, before_TD}, 1);
  return end_norm_(layer_(join_(both_TD, s), s));
}

at::Tensor OwnGuessHead::logits(const Model& model, const at::Tensor& state_RD) const {
  return model.head(model.devices() ? state_RD.to(model.devices()->head) : state_RD, Step());
}

}  // namespace apus
