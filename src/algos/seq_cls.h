// SPDX-License-Identifier: Apache-2.0
// A classifier of texts: --task_type seq_cls.
#pragma once

#include "algos/label_losses.h"
#include "algos/options/seq_cls_options.h"
#include "train/algorithm.h"

namespace apus {

class SeqCls final : public Algorithm {
 public:
  using Options = SeqClsOptions;
  explicit SeqCls(const SeqClsOptions& options)
      : head_(options.score_head()), problem_(problem_named(head_.problem_type)) {}
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  double count(const Batch& batch) const override { return static_cast<double>(batch.step.length_q.size()); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  const ScoreHead head_;
  const Problem problem_;
};

}  // namespace apus
