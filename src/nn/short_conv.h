// SPDX-License-Identifier: Apache-2.0
// LFM2's layers without attention: a short convolution between two gates.
#pragma once

#include "nn/linear.h"
#include "nn/state_layer.h"

namespace apus {

class ShortConv : public StateLayer {
 public:
  ShortConv(const ConvForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  CausalConv& conv_;
  Linear &in_, &out_;
};

}  // namespace apus
