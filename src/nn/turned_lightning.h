// SPDX-License-Identifier: Apache-2.0
// Ling 2.5's lightning attention: as MiniMax's, a sum of keys and values that fades at a speed of head and layer; but
// queries and keys are normalised and turn with their position.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/state_layer.h"

namespace apus {

class TurnedLightning : public StateLayer {
 public:
  TurnedLightning(const TurnedLightningForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  at::Tensor decay(at::TensorOptions options) const;  // [N]
  const TurnedLightningForm form_;
  Linear& qkv_;
  Norm *q_norm_ = nullptr, *k_norm_ = nullptr;
  Linear& gate_;
  GroupNorm& norm_;
  Linear& out_;
};

}  // namespace apus
