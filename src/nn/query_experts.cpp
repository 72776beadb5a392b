// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, D hidden, k experts of a token, K key-value heads, H head size, M pairs of token and expert.
#include "nn/query_experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include "nn/moe.h"

namespace apus {

QueryExperts::QueryExperts(Spec s)
    : spec_(s),
      router_(child<Linear>("router.layer", Linear::Spec{.in = s.hidden, .out = s.experts})),
      in_(param("input_linear.weight", {s.experts, s.kv_heads * s.head_dim, s.hidden})),
      out_(param("output_linear.weight", {s.experts, s.hidden, s.kv_heads * s.head_dim})),
      bias_(param("bias", {s.hidden})) {}

QueryExperts::Chosen QueryExperts::chosen(const at::Tensor& x_TD, const Step& s) const {
  ops::Routing routing = counted_routing(router_(x_TD, s), {.normalise = true}, spec_.per_token, {}, s);
  ops::ExpertPairs pairs = ops::pairs_by_expert(routing.expert_Tk, spec_.experts);
  return {std::move(routing), std::move(pairs)};
}

at::Tensor QueryExperts::queries(const at::Tensor& x_TD, const Chosen& c) const {
  const int64_t tokens = x_TD.size(0);
  const at::Tensor made_MA = ops::grouped_linear(at::index_select(x_TD, 0, c.pairs.token), in_.data, c.pairs.ends);
  const at::Tensor by_pair = at::index_copy(at::zeros(made_MA.sizes(), made_MA.options()), 0, c.pairs.pair, made_MA);
  return by_pair.view({tokens, spec_.per_token, spec_.kv_heads, spec_.head_dim}).transpose(1, 2).reshape({tokens, -1});
}

at::Tensor QueryExperts::joined(const at::Tensor& y_TA, const Chosen& c) const {
  const int64_t tokens = y_TA.size(0);
  const at::Tensor by_pair = y_TA.view({tokens, spec_.kv_heads, spec_.per_token, spec_.head_dim})
                                 .transpose(1, 2)
                                 .reshape({tokens * spec_.per_token, -1});
  const at::Tensor made_MD = ops::grouped_linear(at::index_select(by_pair, 0, c.pairs.pair), out_.data, c.pairs.ends);
  return summed(made_MD, {tokens, spec_.hidden}, c.routing.weight_Tk, c.pairs) + bias_.data;
}

}  // namespace apus
