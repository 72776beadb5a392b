// SPDX-License-Identifier: Apache-2.0
// Self-attention over packed tokens, with or without a paged cache.
#pragma once

#include <optional>

#include "nn/attention_form.h"
#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/norm.h"
#include "nn/query_experts.h"

namespace apus {

namespace ops {
struct AttentionRule;  // ops/ops.h
}

// Pairs (2j, 2j + 1) of the first n numbers of each head, brought to (j, j + n / 2), where ops::rope turns them. Done
// to queries and keys alike, it changes none of their products.
at::Tensor neighbours_apart(const at::Tensor& x_TNH, int64_t n);

// The last 2R numbers of each head turned, where neighbours turn together. cos, sin [T, R] f32.
at::Tensor end_turned(const at::Tensor& x_TNH, const at::Tensor& cos_TR, const at::Tensor& sin_TR);

// Every head's rows times a matrix of its own: x [T, N, I], stack [N, O, I] -> [T, N, O].
at::Tensor each_head(const at::Tensor& x_TNI, const at::Tensor& stack);

// The attention of a layer, of whatever kind.
class AttentionBlock : public Mixer {
 protected:
  // Without a cache; remembers the result for a second run.
  at::Tensor over_packed(const at::Tensor& q_TNH, const at::Tensor& own_TKH, const at::Tensor& own_v_TKH,
                         const ops::AttentionRule& rule, const Step& s) const;
};

class Attention : public AttentionBlock {
 public:
  struct Spec {
    int64_t layer = 0;  // whose cache
    int64_t hidden, heads, kv_heads, head_dim;
    int64_t in = 0;  // what queries, keys and values are made of; 0: as wide as what comes out, hidden
    AttentionForm form;
    NormSpec norm;
    int64_t window = 0;       // > 0: sliding
    int turn = 0;             // which of the step's turns; below 0: positions are not told
    bool neighbours = false;  // RopeSpec::neighbours
    int64_t borrows = -1;     // the layer whose keys and values it reads; -1: it has its own
    bool lends = false;       // its own are read by others
    bool ahead = true;        // it looks at what Step::ahead says
    int64_t reads() const { return in > 0 ? in : hidden; }
  };
  explicit Attention(Spec spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;
  void prepare_inference() override { qkv_.prepare_inference(); }

 private:
  struct Heads {
    at::Tensor q_TNH, k_TKH, v_TKH;
    at::Tensor gate_TA;  // of this rank's tokens, where the form is gated
    std::optional<QueryExperts::Chosen> chosen = {};
  };
  std::vector<Linear*> projections();
  std::vector<at::Tensor> parts(const at::Tensor& qkv_TA) const;  // queries, keys, values of one matrix
  bool borrows() const { return spec_.borrows >= 0; }
  int64_t cached_layer() const { return borrows() ? spec_.borrows : spec_.layer; }
  at::Tensor values(const at::Tensor& made_TA, int64_t tokens) const;
  Heads borrowed(at::Tensor q, at::Tensor gate, const Step& s) const;
  void turn(at::Tensor& q_TNH, at::Tensor& k_TKH, const Step& s) const;
  Heads heads(const at::Tensor& x_TD, const Step& s) const;
  int64_t value_dim() const { return spec_.form.value_dim > 0 ? spec_.form.value_dim : spec_.head_dim; }
  at::Tensor gated(const at::Tensor& y_TA, const at::Tensor& gate_TA) const;
  ops::AttentionRule rule(const Step& s) const;
  at::Tensor with_runs(const at::Tensor& y_TNH, const Heads& heads, const Step& s) const;
  at::Tensor attended(const Heads& heads, const Step& s) const;

  Spec spec_;
  QueryExperts* experts_ = nullptr;  // which make queries and results, where there are any
  LinearGroup qkv_;  // queries, keys, values: three matrices, or one that makes all; keys and values beside experts
  Linear* o_;
  Norm *q_norm_ = nullptr, *k_norm_ = nullptr;
  Linear* gate_ = nullptr;
  HeadNorms *q_norms_ = nullptr, *k_norms_ = nullptr;
  Param* sinks_ = nullptr;
};

}  // namespace apus
