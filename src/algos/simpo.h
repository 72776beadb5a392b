// SPDX-License-Identifier: Apache-2.0
// Simple preference optimisation: by the mean log-probability of a token, the chosen answer leads by a margin.
#pragma once

#include "algos/options/simpo_options.h"
#include "algos/pairs.h"

namespace apus {

// Of the mean log-probabilities of a token of each answer, [P].
at::Tensor simpo_losses(const at::Tensor& chosen_P, const at::Tensor& rejected_P, const SimpoOptions& options);

class Simpo final : public PairAlgorithm {
 public:
  using Options = SimpoOptions;
  explicit Simpo(SimpoOptions options) : PairAlgorithm(options.share_prefix), o_(std::move(options)) {}
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  SimpoOptions o_;
};

}  // namespace apus
