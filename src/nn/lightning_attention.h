// SPDX-License-Identifier: Apache-2.0
// MiniMax's lightning attention: a head's state is the sum of its keys and values, older ones fading at a speed that
// depends on head and layer.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/state_layer.h"

namespace apus {

class LightningAttention : public StateLayer {
 public:
  LightningAttention(const LightningForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  at::Tensor decay(at::TensorOptions options) const;  // [N]
  const LightningForm form_;
  Linear &qkv_, &gate_, &out_;
  Norm& norm_;
};

}  // namespace apus
