// SPDX-License-Identifier: Apache-2.0
// Self-attention over packed tokens, with or without a paged cache.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"

namespace apus {

class Attention : public Module {
 public:
  struct Spec {
    int64_t layer = 0;  // whose cache
    int64_t hidden, heads, kv_heads, head_dim;
    bool qkv_bias = false, out_bias = false, qk_norm = false;
    double eps = 1e-6;
    int64_t window = 0;  // > 0: sliding
  };
  explicit Attention(Spec spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const;
  void prepare_inference() override { qkv_.prepare_inference(); }

 private:
  Spec spec_;
  Linear &q_, &k_, &v_, &o_;
  RmsNorm *q_norm_ = nullptr, *k_norm_ = nullptr;
  LinearGroup qkv_;
};

}  // namespace apus
