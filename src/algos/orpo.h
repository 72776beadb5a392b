// SPDX-License-Identifier: Apache-2.0
// Odds ratio preference optimisation: fine-tuning on the chosen answers, with the odds against the rejected ones.
#pragma once

#include "algos/options/orpo_options.h"
#include "algos/pairs.h"

namespace apus {

// log(odds of the chosen / odds of the rejected answer), odds = p / (1 - p), of the mean log-probabilities of a token.
at::Tensor log_odds_ratio(const at::Tensor& chosen_P, const at::Tensor& rejected_P);

class Orpo final : public PairAlgorithm {
 public:
  using Options = OrpoOptions;
  explicit Orpo(OrpoOptions options) : PairAlgorithm(options.share_prefix), o_(std::move(options)) {}
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  OrpoOptions o_;
};

}  // namespace apus
