// SPDX-License-Identifier: Apache-2.0
// Attention whose keys and values are made of one small vector a token (multi-head latent attention). Training makes
// them, as it needs every head's gradient. The cache holds the small vector and the key that turns, nothing else: there
// the matrix that makes keys is applied to the queries, and the one that makes values to what attention gives.
#pragma once

#include <utility>
#include <vector>

#include "nn/attention.h"

namespace apus {

class LatentAttention : public AttentionBlock {
 public:
  LatentAttention(const Attention::Spec& spec, const LatentForm& form);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;
  void prepare_inference() override;

 private:
  // The two matrices of each head that kv_b_proj consists of: [N, rank, still], which takes queries to the small
  // vector's place, and [N, value, rank].
  struct Stacks {
    at::Tensor keys, values;
  };
  struct Inputs {
    at::Tensor still_TNH, turned_TNR;  // queries
    at::Tensor small_TC, key_T1R;
  };
  Inputs inputs(const at::Tensor& x_TD, const Step& s) const;
  ops::AttentionRule rule() const;
  at::Tensor made_keys(const Inputs& in, const Step& s) const;
  at::Tensor over_cache(const Inputs& in, const Step& s) const;

  at::Tensor weight() const;  // kv_b_proj's, plain where it is held quantised
  Stacks stacks_of(const at::Tensor& weight) const;
  // Which tokens meet which matrices: those of the model, or an adapter's. Rows undefined: all.
  std::vector<std::pair<at::Tensor, Stacks>> shares(const Step& s, int64_t tokens) const;

  const Attention::Spec spec_;
  const LatentForm form_;
  Linear *q_ = nullptr, *q_a_ = nullptr, *q_b_ = nullptr;
  Norm* q_norm_ = nullptr;
  Linear& kv_a_;
  Norm& kv_norm_;
  Linear &kv_b_, &o_;
  Stacks ready_;  // in inference
};

}  // namespace apus
