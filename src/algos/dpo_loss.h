// SPDX-License-Identifier: Apache-2.0
// The losses of direct preference optimisation: pure functions of the log-probabilities of pairs of answers.
// docs/alignment.md has the formulas.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace apus {

// Of the chosen and the rejected answers, by the policy and by the reference; each [P], any float type.
struct PairLogprobs {
  at::Tensor chosen_P, rejected_P, reference_chosen_P, reference_rejected_P;
};

struct DpoLossSpec {
  double beta = 0.1;
  double label_smoothing = 0;
  double discopop_tau = 0.05;
  std::string divergence = "reverse_kl";
  double divergence_alpha = 0.5;
  double bco_mean = 0;  // bco_pair: the mean of all rewards so far
};

// By the name of --loss_type; all but sft, which is the likelihood of the chosen answers alone. ipo wants the
// log-probabilities averaged over tokens.
at::Tensor dpo_losses(const std::string& type, const PairLogprobs& logprobs, const DpoLossSpec& spec);

}  // namespace apus
