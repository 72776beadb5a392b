// SPDX-License-Identifier: Apache-2.0
// RecurrentGemma's recurrent layer: behind a convolution every channel keeps one sum, which fades by a gate of the
// token and takes in the token's value by another. What it gives is opened by a third.
#pragma once

#include "nn/linear.h"
#include "nn/state_layer.h"

namespace apus {

class Fading : public StateLayer {
 public:
  Fading(const FadingForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  // Sigmoids of the channels, block by block.
  at::Tensor gate(const at::Tensor& x_TN, const Param& weight, const Param& bias) const;
  const FadingForm form_;
  Linear &opening_, &in_, &out_;
  CausalConv& conv_;
  Param &speed_, &takes_weight_, &takes_bias_, &fades_weight_, &fades_bias_;
};

}  // namespace apus
