// SPDX-License-Identifier: Apache-2.0
// Mamba, the first one: of each token a channel takes a step, whose length says how much of each of its sums it forgets
// and how much of the token's value they take.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/state_layer.h"

namespace apus {

class SelectiveMamba : public StateLayer {
 public:
  SelectiveMamba(const SelectiveForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  Norm* norm(const char* name, int64_t size);
  at::Tensor normed(const Norm* norm, const at::Tensor& x) const;
  const SelectiveForm form_;
  Param &speed_, &pass_;
  CausalConv& conv_;
  Linear &in_, &parts_, &steps_, &out_;
  Norm *step_norm_, *key_norm_, *query_norm_;
};

}  // namespace apus
