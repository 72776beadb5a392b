// SPDX-License-Identifier: Apache-2.0
// What a rollout says of the tokens that it drew, in the arithmetic of head_logprob: where the logits have the same
// bits, so have the log-probabilities.
#pragma once

#include <ATen/core/Tensor.h>

namespace apus::ops {

// log p(label) of rows of logits over `temperature`: f32 (f64 of f64) [R]. Without a gradient.
at::Tensor logit_logprob(const at::Tensor& logits_RV, const at::Tensor& label_R, double temperature);

}  // namespace apus::ops
