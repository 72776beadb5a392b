// SPDX-License-Identifier: Apache-2.0
// A reward model: a number for a text, higher for the answer of a pair that was chosen (Bradley and Terry).
#pragma once

#include "algos/options/rm_options.h"
#include "algos/pairs.h"

namespace apus {

// margin_P: by how much the chosen answer should lead; undefined: 0. centring: RmOptions::center_rewards_coefficient.
at::Tensor reward_losses(const at::Tensor& chosen_P, const at::Tensor& rejected_P, const at::Tensor& margin_P,
                         double centring);

class RewardModel final : public PairAlgorithm {
 public:
  using Options = RmOptions;
  explicit RewardModel(RmOptions options) : PairAlgorithm(options.share_prefix), o_(options) {}
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  RmOptions o_;
};

}  // namespace apus
