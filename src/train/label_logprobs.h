// SPDX-License-Identifier: Apache-2.0
// log p of each label, by whoever holds its token.
#pragma once

#include "nn/step.h"
#include "ops/ops.h"

namespace apus {

// f32 [T], differentiable; 0 where there is no label. `step` is that of the forward pass which gave the hidden states:
// where ranks shared out its tokens, each makes the logits of its own, and all get the log-probabilities of all.
at::Tensor label_logprobs(const ops::HeadFactors& factors, const at::Tensor& label_T, const Step& step,
                          double temperature = 1);

}  // namespace apus
