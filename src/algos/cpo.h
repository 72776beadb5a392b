// SPDX-License-Identifier: Apache-2.0
// Contrastive preference optimisation: the chosen answer likelier than the rejected one, and likely by itself, so that
// no reference is needed.
#pragma once

#include "algos/options/cpo_options.h"
#include "algos/pairs.h"

namespace apus {

// sigmoid, hinge or ipo, of the log-probabilities of whole answers (ipo: of their means by token), each [P].
at::Tensor cpo_losses(const at::Tensor& chosen_P, const at::Tensor& rejected_P, const CpoOptions& options);

class Cpo final : public PairAlgorithm {
 public:
  using Options = CpoOptions;
  explicit Cpo(CpoOptions options) : PairAlgorithm(options.share_prefix), o_(std::move(options)) {}
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  CpoOptions o_;
};

}  // namespace apus
