// SPDX-License-Identifier: Apache-2.0
// Attention whose keys and values are made of one small vector a token (multi-head latent attention). Training makes
// them, as it needs every head's gradient. The cache holds the small vector and the key that turns, nothing else: there
// the matrix that makes keys is applied to the queries, and the one that makes values to what attention gives.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "nn/attention.h"

namespace apus {

// Rates tokens for the choice of those that attention looks at. Its matrices have no gradient.
class LatentIndex : public Module {
 public:
  LatentIndex(int64_t hidden, int64_t query_rank, int64_t turned, const IndexForm& form);
  struct Made {
    at::Tensor q_TnD, k_TD, weight_Tn;
  };
  Made made(const at::Tensor& x_TD, const at::Tensor& small_q_TC, const Turn& turn, const Step& s) const;
  // Of tokens [first, first + q's) of a sequence over its keys: true where one is not looked at, as it is not among the
  // best or comes later.
  at::Tensor hidden(const at::Tensor& q_TnD, const at::Tensor& weight_Tn, const at::Tensor& k_KD, int64_t first) const;

 private:
  const IndexForm form_;
  const int64_t turned_;
  Linear &q_, &k_;
  Norm& k_norm_;
  Linear& weights_;
};

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
    LatentIndex::Made index = {};
  };
  Inputs inputs(const at::Tensor& x_TD, const Step& s) const;
  ops::AttentionRule rule() const;
  at::Tensor made_keys(const Inputs& in, const Step& s) const;
  // Queries to the place of the small vectors, what attention sees there, and its values.
  at::Tensor over_small(const at::Tensor& still_TNH, const at::Tensor& turned_TNR, const Step& s,
                        const std::function<at::Tensor(const at::Tensor& q_TNC)>& attend) const;
  at::Tensor over_cache(const Inputs& in, const Step& s) const;
  at::Tensor as_over_cache(const Inputs& in, const Step& s) const;

  // Whether a sequence of the step is longer than what is looked at.
  bool chooses(const Step& s) const;
  // Of the step's sequence i (LatentIndex::hidden): its own choice, which others may take, or another layer's.
  at::Tensor hidden(size_t i, const std::function<at::Tensor()>& chosen, const Step& s) const;
  at::Tensor over_chosen(const Inputs& in, const Step& s) const;
  at::Tensor over_chosen_cache(const at::Tensor& q_TNC, const at::Tensor& cache, const Inputs& in, const Step& s) const;

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
  Linear* gate_ = nullptr;
  Param* sinks_ = nullptr;
  LatentIndex* index_ = nullptr;
  Stacks ready_;  // in inference
};

}  // namespace apus
