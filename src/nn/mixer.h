// SPDX-License-Identifier: Apache-2.0
// What brings the tokens of a sequence together in a layer: attention, or a layer with a state.
#pragma once

#include "nn/module.h"
#include "nn/step.h"

namespace apus {

class Mixer : public Module {
 public:
  virtual at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const = 0;
};

}  // namespace apus
