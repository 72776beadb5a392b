// SPDX-License-Identifier: Apache-2.0
#include "algos/rm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/nan_to_num.h>

#include "models/pooling.h"

namespace apus {

at::Tensor reward_losses(const at::Tensor& chosen_P, const at::Tensor& rejected_P, const at::Tensor& margin_P,
                         double centring) {
  at::Tensor lead_P = chosen_P - rejected_P;
  if (margin_P.defined()) lead_P = lead_P - margin_P;
  const at::Tensor loss_P = -log_sigmoid(lead_P);
  return centring > 0 ? loss_P + (chosen_P + rejected_P).square() * centring : loss_P;
}

Loss RewardModel::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const at::Tensor score_P2 = text_scores(actors.policy, batch.id_T, hidden_TD, batch.step).view({-1, 2});
  const at::Tensor chosen_P = score_P2.select(1, 0), rejected_P = score_P2.select(1, 1);
  at::Tensor margin_P;
  if (const auto margin = batch.sequence_columns.find("margin"); margin != batch.sequence_columns.end())
    margin_P = at::nan_to_num(margin->second.view({-1, 2}).select(1, 0), 0);
  Loss out{.sum = reward_losses(chosen_P, rejected_P, margin_P, o_.center_rewards_coefficient.value_or(0)).sum(),
           .metrics = {}};
  const at::Tensor c_P = chosen_P.detach(), r_P = rejected_P.detach();
  out.metrics["accuracy"] = mean_of(c_P.gt(r_P).to(at::kFloat));
  out.metrics["margin"] = mean_of(c_P - r_P);
  out.metrics["rewards/chosen"] = mean_of(c_P), out.metrics["rewards/rejected"] = mean_of(r_P);
  return out;
}

namespace {
const RegisterAlgorithm<RewardModel> rm("rm");
}  // namespace

}  // namespace apus
