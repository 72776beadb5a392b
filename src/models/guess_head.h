// SPDX-License-Identifier: Apache-2.0
// A head that guesses tokens ahead of a model: one layer behind it, with keys and values of its own. It reads what the
// model made of a token, and the token that follows; what it makes of them stands for what the model would make of
// that one, so that it can go on by itself.
#pragma once

#include <vector>

#include "base/error.h"
#include "models/model.h"

namespace apus {

class GuessHead : public Module {
 public:
  // What a cache of its layer holds (cache_spec).
  virtual const ModelShape& shape() const = 0;
  // The model's layers behind which it looks at the states, by their numbers; none: at those behind the last norm.
  virtual std::vector<int64_t> layers_seen() const { return {}; }
  // Of the states that it looks at, side by side, the one that it goes on from.
  virtual at::Tensor begin(const at::Tensor& seen_TA) const { return seen_TA; }
  // From a state of each token and the tokens that follow, `next`, to the states of those, and to the logits of what
  // comes behind them, in the model's words. The step is of `state_TD`'s places.
  virtual at::Tensor states(const Model& model, const Inputs& next, const at::Tensor& state_TD, Step& s) const = 0;
  virtual at::Tensor logits(const Model& model, const at::Tensor& state_RD) const = 0;
  // The states in training, in a step that the model has begun: `token_TD`, the embeddings of the tokens that follow.
  virtual at::Tensor trained_states(const at::Tensor& /*token_TD*/, const at::Tensor& /*state_TD*/,
                                    const Step& /*s*/) const {
    fail(Fault::Bug, "this head that guesses is trained by others");
  }
};

}  // namespace apus
