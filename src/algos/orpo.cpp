// SPDX-License-Identifier: Apache-2.0
#include "algos/orpo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>

namespace apus {
namespace {

// log(1 - exp(x)) for x < 0. An answer that is certain to f32's last bit has no finite odds: it counts as nearly so.
at::Tensor log_of_rest(const at::Tensor& x) { return at::log(-at::expm1(x.clamp_max(-1e-7))); }

}  // namespace

at::Tensor log_odds_ratio(const at::Tensor& chosen_P, const at::Tensor& rejected_P) {
  return chosen_P - rejected_P - (log_of_rest(chosen_P) - log_of_rest(rejected_P));
}

Loss Orpo::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const PairSums sums = pair_sums(policy_logprobs(actors, batch, forward), batch), means = sums.averaged();
  const at::Tensor odds_P = log_odds_ratio(means.chosen_P, means.rejected_P), log_P = log_sigmoid(odds_P);
  Loss out{.sum = (chosen_nll(sums, batch) - log_P * o_.beta).sum(), .metrics = {}};
  log_rewards(out, means.chosen_P.detach() * o_.beta, means.rejected_P.detach() * o_.beta, means);
  out.metrics["nll_loss"] = shown_nll(sums);
  out.metrics["log_odds_ratio"] = mean_of(log_P), out.metrics["log_odds_chosen"] = mean_of(odds_P);
  return out;
}

namespace {
const RegisterAlgorithm<Orpo> orpo("orpo");
}  // namespace

}  // namespace apus
