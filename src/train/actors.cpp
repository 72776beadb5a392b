// SPDX-License-Identifier: Apache-2.0
#include "train/actors.h"

#include <c10/core/GradMode.h>

#include "ops/ops.h"

namespace apus {

at::Tensor Reference::logprobs(const Batch& batch) const {
  at::NoGradGuard no_grad;
  Step step = adapters_off_ ? batch.step.without_adapters() : batch.step;
  step.training = nullptr;
  const at::Tensor hidden_TD = model_->forward(batch.id_T, step);
  return ops::head_logprob(model_->head_factors(hidden_TD, step), batch.label_T, 1, false).logprob_T;
}

}  // namespace apus
