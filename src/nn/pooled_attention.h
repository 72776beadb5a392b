// SPDX-License-Identifier: Apache-2.0
// Attention to the keys of a window and to pooled keys besides, of one head that all queries share and whose keys are
// values too. The cache holds with each token its key and a part of the pooled key that it belongs to; the state of a
// sequence is what its last tokens will give to the next pooled key.
#pragma once

#include "nn/attention.h"
#include "nn/key_pool.h"
#include "nn/rope_spec.h"

namespace apus {

// A matrix for each group of heads, one below the other in the file.
class GroupedLinear : public Module {
 public:
  GroupedLinear(int64_t groups, int64_t in, int64_t out);
  at::Tensor operator()(const at::Tensor& x_TI) const;  // [T, groups * in] -> [T, groups * out]

 private:
  const int64_t groups_;
  Param& weight_;
};

class PooledAttention : public Mixer {
 public:
  struct Spec {
    int64_t layer, hidden, heads, dim, window;
    double eps;
    size_t turn;    // which of the step's
    RopeSpec rope;  // the same, of positions that are no token's of the step
    PooledForm::Pool pool;
    PooledForm form;
  };
  explicit PooledAttention(const Spec& spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  struct Made {
    at::Tensor q_TNH, k_T1H;
    at::Tensor pooled_TW;  // what pooled keys are made of, and those of the index; undefined: there are none
    KeyIndex::Queries index = {};
  };
  Made made(const at::Tensor& x_TD, const Step& s) const;
  // What one sequence of the step looks at: keys of tokens from `from` on, and all pooled ones.
  struct Seen {
    int64_t from = 0;
    at::Tensor k_U1H, pooled_P1H, index_PD;
  };
  // Of a sequence whose tokens in this step lie from `row` on, the first of them being its first-th.
  struct Place {
    int64_t sequence, row, length, first;
  };
  Seen seen(const Made& made, const Place& at, const Step& s) const;
  Seen seen_in_cache(const Made& made, const Place& at, const Step& s) const;
  // The pools that end among these tokens, of which [begin, ...) rows are there: their keys and the index', turned.
  at::Tensor pooled_keys(const at::Tensor& made_RW, int64_t begin, int64_t first, int64_t end) const;
  at::Tensor pooled_now(const Made& made, const Place& at, const Step& s) const;
  at::Tensor attended(const Made& made, const Seen& seen, const Place& at) const;
  void split(const at::Tensor& key_PA, Seen& seen) const;

  const Spec spec_;
  Param& sinks_;
  Linear& q_a_;
  Norm& q_norm_;
  Linear &q_b_, &kv_;
  Norm& kv_norm_;
  GroupedLinear& o_a_;
  Linear& o_b_;
  KeyPool* pool_ = nullptr;
  KeyIndex* index_ = nullptr;
};

}  // namespace apus
