// SPDX-License-Identifier: Apache-2.0
// Direct preference optimisation: the chosen answer of a pair becomes likelier than the rejected one, both measured
// against a reference.
#pragma once

#include "algos/dpo_loss.h"
#include "algos/options/dpo_options.h"
#include "algos/pairs.h"

namespace apus {

class Dpo final : public PairAlgorithm {
 public:
  using Options = DpoOptions;
  explicit Dpo(DpoOptions options) : PairAlgorithm(options.share_prefix), o_(std::move(options)) {}
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;
  Json state() const override;
  void restore(const Json& state) override;

 private:
  // Sum and number of the rewards that bco_pair centres by.
  struct Rewards {
    double sum = 0, count = 0;
  };
  PairLogprobs logprobs(const PairSums& policy, const std::optional<PairSums>& reference) const;
  double bco_mean(const at::Tensor& chosen_P, const at::Tensor& rejected_P);
  bool compares(const char* type) const;
  DpoOptions o_;
  Rewards before_, here_;  // of all ranks up to this update, and of this rank in it
};

}  // namespace apus
