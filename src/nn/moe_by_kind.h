// SPDX-License-Identifier: Apache-2.0
// Two mixtures of experts, of which a token meets one: the first, or, where it stands for media or begins or ends them
// (Step::kinds), the second. An expert beside them is of all tokens.
#pragma once

#include "nn/moe.h"

namespace apus {

class MoeByKind : public FeedForward {
 public:
  // The shared expert and the correction are those of `text`; the correction's second row is the other mixture's.
  MoeByKind(MoeMlp::Spec text, MoeMlp::Spec media);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  at::Tensor routed(const at::Tensor& x_TD, const Step& s) const;
  MoeMlp &text_, &media_;
  Mlp* shared_ = nullptr;
};

}  // namespace apus
