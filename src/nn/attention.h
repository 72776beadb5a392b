// SPDX-License-Identifier: Apache-2.0
// Self-attention over packed tokens, with or without a paged cache.
#pragma once

#include "nn/attention_form.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace apus {

class Attention : public Module {
 public:
  struct Spec {
    int64_t layer = 0;  // whose cache
    int64_t hidden, heads, kv_heads, head_dim;
    AttentionForm form;
    NormSpec norm;
    int64_t window = 0;       // > 0: sliding
    int turn = 0;             // which of the step's turns; below 0: positions are not told
    bool neighbours = false;  // RopeSpec::neighbours
  };
  explicit Attention(Spec spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const;
  void prepare_inference() override { qkv_.prepare_inference(); }

 private:
  struct Heads {
    at::Tensor q_TNH, k_TKH, v_TKH;
  };
  std::vector<Linear*> projections();
  Heads heads(const at::Tensor& x_TD, const Step& s) const;
  at::Tensor attended(const Heads& heads, const Step& s) const;

  Spec spec_;
  LinearGroup qkv_;  // queries, keys, values: three matrices, or one that makes all
  Linear& o_;
  Norm *q_norm_ = nullptr, *k_norm_ = nullptr;
};

}  // namespace apus
