// SPDX-License-Identifier: Apache-2.0
// The head that guesses with which a checkpoint comes (GuessForm).
#pragma once

#include "models/decoder.h"
#include "models/guess_head.h"

namespace apus {

// Its states are normed as the model's last ones.
class OwnGuessHead : public GuessHead {
 public:
  OwnGuessHead(const DecoderSpec& spec, const GuessForm& form);
  const ModelShape& shape() const override { return shape_; }
  at::Tensor states(const Model& model, const Inputs& next, const at::Tensor& state_TD, Step& s) const override;
  at::Tensor logits(const Model& model, const at::Tensor& state_RD) const override;
  at::Tensor trained_states(const at::Tensor& token_TD, const at::Tensor& state_TD, const Step& s) const override;

 private:
  OwnGuessHead(const DecoderSpec& spec, const DecoderSpec& one, const GuessForm& form);
  const ModelShape shape_;
  const bool state_first_;
  Norm &token_norm_, &state_norm_;
  Linear& join_;
  DecoderLayer& layer_;
  Norm& end_norm_;
};

}  // namespace apus
