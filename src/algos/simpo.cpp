// SPDX-License-Identifier: Apache-2.0
#include "algos/simpo.h"

#include <ATen/TensorOperators.h>

namespace apus {

at::Tensor simpo_losses(const at::Tensor& chosen_P, const at::Tensor& rejected_P, const SimpoOptions& options) {
  return smoothed_logistic((chosen_P - rejected_P) * options.beta - options.simpo_gamma, options.label_smoothing);
}

Loss Simpo::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const PairSums sums = pair_sums(policy_logprobs(actors, batch, forward), batch), means = sums.averaged();
  Loss out{
      .sum = simpo_losses(means.chosen_P, means.rejected_P, o_).sum() + (chosen_nll(sums, batch) * o_.cpo_alpha).sum(),
      .metrics = {}};
  log_rewards(out, means.chosen_P.detach() * o_.beta, means.rejected_P.detach() * o_.beta, means);
  out.metrics["nll_loss"] = shown_nll(sums);
  return out;
}

namespace {
const RegisterAlgorithm<Simpo> simpo("simpo");
}  // namespace

}  // namespace apus
