// SPDX-License-Identifier: Apache-2.0
// Kahneman-Tversky optimisation: single answers with a label. What an answer gains over the reference is compared with
// what any answer gains: the divergence of the policy, estimated by answers that stand behind other rows' prompts.
#pragma once

#include "algos/options/kto_options.h"
#include "train/algorithm.h"

namespace apus {

// ratio_N: log p by the policy minus by the reference, of whole answers. desirable_N: 1 or 0. divergence: the estimate,
// not below 0.
at::Tensor kto_losses(const at::Tensor& ratio_N, const at::Tensor& desirable_N, double divergence,
                      const KtoOptions& options);

// Each row's prompt with the answer of the row before it.
Samples mismatched(const Samples& samples);

// The divisor of the loss is the number of rows.
class Kto final : public Algorithm {
 public:
  using Options = KtoOptions;
  explicit Kto(KtoOptions options) : o_(std::move(options)) {}
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  bool collects_by_policy() const override { return true; }  // the divergence
  double count(const Batch& batch) const override { return static_cast<double>(batch.step.length_q.size()); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  double divergence(Actors& actors, const std::vector<Samples>& micro_batches) const;
  KtoOptions o_;
};

}  // namespace apus
