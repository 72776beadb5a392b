// SPDX-License-Identifier: Apache-2.0
#include "algos/dpo.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace apus {

bool Dpo::compares(const char* type) const { return std::count(o_.loss_type.begin(), o_.loss_type.end(), type) > 0; }

std::vector<Update> Dpo::collect(Actors& actors, std::vector<Samples> micro_batches) {
  if (compares("bco_pair") && at::GradMode::is_enabled()) {
    before_.sum += actors.summed(here_.sum), before_.count += actors.summed(here_.count);
    here_ = {};
  }
  return PairAlgorithm::collect(actors, std::move(micro_batches));
}

// The mean over everything up to and with these pairs; an evaluation leaves no trace in it.
double Dpo::bco_mean(const at::Tensor& chosen_P, const at::Tensor& rejected_P) {
  Rewards here = here_;
  here.sum += (chosen_P.detach().sum() + rejected_P.detach().sum()).item<double>() * o_.beta;
  here.count += static_cast<double>(chosen_P.numel() + rejected_P.numel());
  if (at::GradMode::is_enabled()) here_ = here;
  return (before_.sum + here.sum) / (before_.count + here.count);
}

Json Dpo::state() const { return {{"reward_sum", before_.sum + here_.sum}, {"rewards", before_.count + here_.count}}; }

void Dpo::restore(const Json& state) {
  before_ = {state.value("reward_sum", 0.0), state.value("rewards", 0.0)};
  here_ = {};
}

PairLogprobs Dpo::logprobs(const PairSums& policy, const std::optional<PairSums>& reference) const {
  const at::Tensor none_P = at::zeros_like(policy.chosen_P.detach());
  return {policy.chosen_P, policy.rejected_P, reference ? reference->chosen_P : none_P,
          reference ? reference->rejected_P : none_P};
}

Loss Dpo::loss(Actors& actors, Batch& batch, const Forward& forward) {
  std::optional<PairSums> reference;
  if (o_.uses_reference()) {
    require(actors.reference.has_value(), Fault::Bug, "dpo is given no reference");
    reference = pair_sums(actors.reference->logprobs(batch), batch);
  }
  const at::Tensor logprob_T = policy_logprobs(actors, batch, forward);
  const PairSums whole = pair_sums(logprob_T, batch), policy = pair_sums(logprob_T, batch, o_.ld_alpha.value_or(1));
  const PairLogprobs sums = logprobs(policy, reference);
  std::optional<PairSums> mean_reference;
  if (reference) mean_reference = reference->averaged();
  const PairLogprobs means = logprobs(policy.averaged(), mean_reference);
  const bool by_token = o_.loss_type == std::vector<std::string>{"ipo"};
  const PairLogprobs& shown = by_token ? means : sums;
  const at::Tensor chosen_P = shown.chosen_P - shown.reference_chosen_P,
                   rejected_P = shown.rejected_P - shown.reference_rejected_P;

  DpoLossSpec spec{.beta = o_.beta,
                   .label_smoothing = o_.label_smoothing,
                   .discopop_tau = o_.discopop_tau,
                   .divergence = o_.f_divergence_type,
                   .divergence_alpha = o_.f_alpha_divergence_coef};
  if (compares("bco_pair")) spec.bco_mean = bco_mean(chosen_P, rejected_P);
  const at::Tensor nll_P = chosen_nll(whole, batch);
  Loss out;
  for (size_t i = 0; i < o_.loss_type.size(); ++i) {
    const std::string& type = o_.loss_type[i];
    const at::Tensor loss_P = type == "sft" ? nll_P : dpo_losses(type, type == "ipo" ? means : sums, spec);
    const at::Tensor sum = (loss_P * o_.weight(i)).sum();
    out.sum = out.sum.defined() ? out.sum + sum : sum;
  }
  if (o_.rpo_alpha) out.sum = out.sum + (nll_P * *o_.rpo_alpha).sum();
  log_rewards(out, chosen_P.detach() * o_.beta, rejected_P.detach() * o_.beta, by_token ? whole.averaged() : whole);
  if (o_.rpo_alpha || compares("sft")) out.metrics["nll_loss"] = shown_nll(whole);
  return out;
}

namespace {
const RegisterAlgorithm<Dpo> dpo("dpo");
}  // namespace

}  // namespace apus
