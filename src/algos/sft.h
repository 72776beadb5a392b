// SPDX-License-Identifier: Apache-2.0
// Supervised fine-tuning, and pre-training: weighted cross-entropy over the labelled tokens.
#pragma once

#include "algos/options/sft_options.h"
#include "train/algorithm.h"

namespace apus {

class Sft final : public Algorithm {
 public:
  using Options = SftOptions;
  explicit Sft(SftOptions options) : o_(std::move(options)) {}
  double count(const Batch& batch) const override { return static_cast<double>(batch.trained); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  SftOptions o_;
};

}  // namespace apus
