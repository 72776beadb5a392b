// SPDX-License-Identifier: Apache-2.0
// Mamba-2: of each token a head takes a step, whose length says how much of the state it forgets and how much of the
// token's value it adds.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/state_layer.h"

namespace apus {

class Mamba : public StateLayer {
 public:
  Mamba(const MambaForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  at::Tensor scaled(const at::Tensor& made) const;
  at::Tensor gated(const at::Tensor& y, const at::Tensor& gate) const;
  const MambaForm form_;
  Param &speed_, &pass_, &step_bias_;
  CausalConv& conv_;
  Linear& in_;
  GroupNorm* norm_ = nullptr;
  Linear& out_;
};

}  // namespace apus
