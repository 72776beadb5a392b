// SPDX-License-Identifier: Apache-2.0
#include "train/actors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "device/agree.h"
#include "models/pooling.h"
#include "ops/ops.h"
#include "train/label_logprobs.h"
#include "train/reference_record.h"
#include "train/shared_prefix.h"

namespace apus {

namespace {
at::Tensor hidden_of(const Model& model, const Batch& batch, Step& step) {
  return hidden_states(batch, step, [&](const Inputs& in, Step& s) {
    s.position = at::Tensor();  // the model's own: images are not counted token by token
    return model.forward(in, s);
  });
}

// -> and the step as its forward pass left it.
ops::HeadFactors factors_of(const Model& model, bool adapters_off, const Batch& batch, Step& step) {
  step = adapters_off ? batch.step.without_adapters() : batch.step;
  step.training = nullptr;
  return model.head_factors(hidden_of(model, batch, step), step);
}
}  // namespace

at::Tensor Reference::logprobs(const Batch& batch, double temperature) const {
  at::NoGradGuard no_grad;
  require(!record_ || temperature == 1, Fault::Bug, "recorded log-probs are of temperature 1");
  if (record_) return record_->logprobs(batch);
  Step step;
  const ops::HeadFactors factors = factors_of(*model_, adapters_off_, batch, step);
  return label_logprobs(*model_, factors, batch.label_T, step, temperature);
}

ops::HeadFactors Reference::head_factors(const Batch& batch) const {
  at::NoGradGuard no_grad;
  require(!record_, Fault::Bug, "a record of log-probs has no logits");
  Step step;
  return factors_of(*model_, adapters_off_, batch, step);
}

at::Tensor token_scores(const Model& model, const at::Tensor& normed_TD, const Step& step) {
  return model.scores(normed_TD, step).squeeze(1).to(at::kFloat);
}

at::Tensor Scorer::scores(const Batch& batch) const {
  at::NoGradGuard no_grad;
  Step step = batch.step;
  step.training = nullptr;
  return text_scores(*model_, batch.id_T, hidden_of(*model_, batch, step), step);
}

at::Tensor Scorer::token_scores(const Batch& batch) const {
  at::NoGradGuard no_grad;
  Step step = batch.step;
  step.training = nullptr;
  return apus::token_scores(*model_, hidden_of(*model_, batch, step), step);
}

double Actors::summed(double value) const { return data_ranks ? sum_over(*data_ranks, value) : value; }

}  // namespace apus
