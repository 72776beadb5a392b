// SPDX-License-Identifier: Apache-2.0
// Supervised fine-tuning, and pre-training: weighted cross-entropy over the labelled tokens.
#pragma once

#include "ops/ops.h"
#include "train/algorithm.h"

namespace apus {

struct SftSpec {
  double label_smoothing = 0;
  bool dft = false;           // each token's loss times its own probability
  bool channel_loss = false;  // loss_<channel> beside the loss
  // seq_acc, the share of sequences with every token right, instead of token_acc.
  bool sequence_accuracy = false;
};

class Sft final : public Algorithm {
 public:
  explicit Sft(SftSpec spec) : spec_(spec) {}
  double count(const Batch& batch) const override { return static_cast<double>(batch.trained); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  SftSpec spec_;
};

}  // namespace apus
