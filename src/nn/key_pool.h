// SPDX-License-Identifier: Apache-2.0
// Keys that are made of several tokens each: a mean of their values, number by number, weighed by a softmax over the
// tokens; and the small ones by which an index chooses among them.
#pragma once

#include "nn/attention_form.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace apus {

class KeyPool : public Module {
 public:
  // Keys of `dim` numbers. eps: of their norm.
  KeyPool(int64_t hidden, int64_t dim, const PooledForm::Pool& pool, double eps);
  // What keys are made of: [T, pool.made(dim)].
  at::Tensor made(const at::Tensor& x_TD, const Step& s) const;
  // The keys of `count` pools from `first` on, before they turn: [count, dim]. The rows are those of the tokens from
  // `begin` on, which may be below 0: there is nothing in such tokens.
  at::Tensor keys(const at::Tensor& made_RW, int64_t begin, int64_t first, int64_t count) const;

 private:
  const PooledForm::Pool pool_;
  const int64_t dim_;
  Param& position_bias_;  // [tokens of a pool, a half of made()]
  Linear &values_, &gates_;
  Norm& norm_;
};

// It is not trained.
class KeyIndex : public KeyPool {
 public:
  KeyIndex(int64_t hidden, const PooledForm& form, const PooledForm::Pool& pool, double eps);
  struct Queries {
    at::Tensor q_TnD, weight_Tn;
  };
  Queries queries(const at::Tensor& x_TD, const at::Tensor& small_q_TC, const Turn& turn, const Step& s) const;

 private:
  const IndexForm form_;
  Linear &q_, &weights_;
};

}  // namespace apus
