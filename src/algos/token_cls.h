// SPDX-License-Identifier: Apache-2.0
// A model that labels each word of a text: --task_type token_cls.
#pragma once

#include "algos/options/token_cls_options.h"
#include "train/algorithm.h"

namespace apus {

class TokenCls final : public Algorithm {
 public:
  using Options = TokenClsOptions;
  explicit TokenCls(const TokenClsOptions& options) : head_(options.score_head()) {}
  // A word's first token has its label, further ones and the marks around a text have none.
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  double count(const Batch& batch) const override;  // labelled tokens
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  const ScoreHead head_;
};

}  // namespace apus
