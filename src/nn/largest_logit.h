// SPDX-License-Identifier: Apache-2.0
// How large attention's logits may have become in some passes: for optimizers that hold them down (muonclip).
#pragma once

#include <ATen/core/Tensor.h>

namespace apus {

// No logit is larger than the longest query times the longest key times the scale, which costs no product. It stays on
// the device until it is taken.
class LargestLogit {
 public:
  void look(const at::Tensor& q_TNH, const at::Tensor& k_TKH, double scale);
  double take();  // since the last time; 0 where nothing was seen

 private:
  at::Tensor largest_;
};

}  // namespace apus
