// SPDX-License-Identifier: Apache-2.0
#include "algos/tokens_ahead.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "models/guess_head.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "train/label_logprobs.h"

namespace apus {

at::Tensor places_behind(const Step& s) {
  std::vector<int64_t> place;
  for (const int32_t length : s.length_q)
    for (int32_t i = 0; i < length; ++i) place.push_back(std::ssize(place) + (i + 1 < length ? 1 : 0));
  return at::tensor(place, at::kLong);
}

namespace {
// The head is given all tokens: of the model's own some may be other ranks'.
Step of_all_tokens(Step s) {
  if (!training_of(s).residual) return s;
  TrainingStep training = training_of(s);
  training.residual = nullptr;
  set_training(s, std::move(training));
  return s;
}
}  // namespace

AheadLoss loss_ahead(const Model& model, const Batch& batch, const at::Tensor& embedded_TD,
                     const at::Tensor& hidden_TD) {
  const GuessHead* head = model.guess_head();
  require(head && embedded_TD.defined(), Fault::Bug, "there is no head that guesses, or nothing for it to read");
  const auto& share = training_of(batch.step).residual;
  const at::Tensor all_TD = share ? share->gathered(embedded_TD) : embedded_TD;
  const at::Tensor behind_T = places_behind(batch.step).to(batch.label_T.device());
  const at::Tensor own_T = at::arange(behind_T.size(0), behind_T.options()), last_T = behind_T.eq(own_T);
  const at::Tensor label_T = batch.label_T.index_select(0, behind_T).masked_fill(last_T, -100),
                   weight_T = batch.weight_T.index_select(0, behind_T);
  const at::Tensor state_TD =
      head->trained_states(all_TD.index_select(0, behind_T.to(all_TD.device())), hidden_TD, of_all_tokens(batch.step));
  const ops::HeadLoss loss = label_loss(model, model.head_factors(state_TD, batch.step), label_T, weight_T, {});
  const at::Tensor labelled_T = label_T.ge(0);
  return {loss.loss_sum, loss.nll_T.sum(), labelled_T.sum(), loss.correct_T.logical_and(labelled_T).sum()};
}

}  // namespace apus
