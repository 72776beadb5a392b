// SPDX-License-Identifier: Apache-2.0
#include "algos/cpo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/relu.h>

namespace apus {

at::Tensor cpo_losses(const at::Tensor& chosen_P, const at::Tensor& rejected_P, const CpoOptions& options) {
  const at::Tensor margin_P = chosen_P - rejected_P;
  if (options.loss_type == "hinge") return at::relu(1 - margin_P * options.beta);
  if (options.loss_type == "ipo") return (margin_P - 1 / (2 * options.beta)).square();
  return smoothed_logistic(margin_P * options.beta, options.label_smoothing);
}

Loss Cpo::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const PairSums sums = pair_sums(policy_logprobs(actors, batch, forward), batch);
  const PairSums shown = o_.loss_type == "ipo" ? sums.averaged() : sums;
  Loss out{
      .sum = cpo_losses(shown.chosen_P, shown.rejected_P, o_).sum() + (chosen_nll(sums, batch) * o_.cpo_alpha).sum(),
      .metrics = {}};
  log_rewards(out, shown.chosen_P.detach() * o_.beta, shown.rejected_P.detach() * o_.beta, shown);
  out.metrics["nll_loss"] = shown_nll(sums);
  return out;
}

namespace {
const RegisterAlgorithm<Cpo> cpo("cpo");
}  // namespace

}  // namespace apus
