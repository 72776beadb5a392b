// SPDX-License-Identifier: Apache-2.0
#include "nn/key_pool.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "nn/attention.h"
#include "nn/state_layer.h"

namespace apus {

KeyPool::KeyPool(int64_t hidden, int64_t dim, const PooledForm::Pool& pool, double eps)
    : pool_(pool),
      dim_(dim),
      position_bias_(param("position_bias", {pool.tokens, pool.made(dim) / 2})),
      values_(child<Linear>("kv_proj", Linear::Spec{.in = hidden, .out = pool.made(dim) / 2})),
      gates_(child<Linear>("gate_proj", Linear::Spec{.in = hidden, .out = pool.made(dim) / 2})),
      norm_(child<Norm>("kv_norm", dim, NormSpec{.eps = eps})) {}

at::Tensor KeyPool::made(const at::Tensor& x_TD, const Step& s) const {
  return at::cat({values_(x_TD, s), gates_(x_TD, s)}, 1);
}

at::Tensor KeyPool::keys(const at::Tensor& made_RW, int64_t begin, int64_t first, int64_t count) const {
  const int64_t tokens = pool_.tokens, half = pool_.made(dim_) / 2;
  const auto of_pools = [&](int64_t from, int64_t column) {
    return made_RW.narrow(1, column, dim_)
        .narrow(0, from * tokens - begin, count * tokens)
        .reshape({count, tokens, -1});
  };
  const auto gates = [&](int64_t from, int64_t column) {
    return widened(of_pools(from, half + column)) + widened(position_bias_.data.narrow(1, column, dim_));
  };
  at::Tensor value, gate;
  if (pool_.chosen) {
    at::Tensor before = gates(first - 1, 0);
    if (first == 0) {  // there is none before the first
      const at::Tensor none = at::full_like(before.narrow(0, 0, 1), -std::numeric_limits<double>::infinity());
      before = at::cat({none, before.narrow(0, 1, count - 1)}, 0);
    }
    value = at::cat({of_pools(first - 1, 0), of_pools(first, dim_)}, 1);
    gate = at::cat({before, gates(first, dim_)}, 1);
  } else {
    value = of_pools(first, 0), gate = gates(first, 0);
  }
  return norm_((value * at::softmax(gate, 1).to(value.scalar_type())).sum(1));
}

KeyIndex::KeyIndex(int64_t hidden, const PooledForm& form, const PooledForm::Pool& pool, double eps)
    : KeyPool(hidden, form.index.dim, pool, eps),
      form_(form.index),
      q_(child<Linear>("q_b_proj", Linear::Spec{.in = form.query_rank, .out = form_.heads * form_.dim})),
      weights_(child<Linear>("scorer.weights_proj", Linear::Spec{.in = hidden, .out = form_.heads})) {
  visit([](const std::string&, Param& p) { p.trainable = false; });
}

KeyIndex::Queries KeyIndex::queries(const at::Tensor& x_TD, const at::Tensor& small_q_TC, const Turn& turn,
                                    const Step& s) const {
  const at::NoGradGuard choosing;
  const at::Tensor q_TnD = q_(small_q_TC, s).view({x_TD.size(0), form_.heads, form_.dim});
  return {end_turned(q_TnD, turn.cos, turn.sin), weights_(x_TD, s)};
}

}  // namespace apus
