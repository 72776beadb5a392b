// SPDX-License-Identifier: Apache-2.0
#include "train/label_logprobs.h"

#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

at::Tensor label_logprobs(const ops::HeadFactors& factors, const at::Tensor& label_T, const Step& step,
                          double temperature) {
  const auto& share = training_of(step).tokens;
  if (!share) return ops::head_logprob(factors, label_T, temperature, false).logprob_T;
  return share->summed(ops::head_logprob(factors, share->own_labels(label_T), temperature, false).logprob_T);
}

}  // namespace apus
