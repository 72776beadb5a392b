// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N query heads, K key-value heads, H head size.
#include "nn/attention.h"

#include <cmath>

#include "nn/training_step.h"
#include "ops/ops.h"

namespace apus {

namespace {
// Ranks take key-value heads with the query heads that look at them. Where ranks outnumber key-value heads, those that
// share one hold it each, and share out its query heads.
Linear::Spec queries(const Attention::Spec& s, Linear::Spec linear) {
  linear.cut = {.axis = Axis::Tp, .dim = 0, .groups = s.kv_heads, .units = s.heads / s.kv_heads};
  return linear;
}
Linear::Spec keys(const Attention::Spec& s) {
  return {.in = s.hidden,
          .out = s.kv_heads * s.head_dim,
          .bias = s.qkv_bias,
          .split = Split::Out,
          .cut = {.axis = Axis::Tp, .dim = 0, .groups = s.kv_heads, .shared = true}};
}
}  // namespace

Attention::Attention(Spec s)
    : spec_(s),
      q_(child<Linear>(
          "q_proj",
          queries(s, {.in = s.hidden, .out = s.heads * s.head_dim, .bias = s.qkv_bias, .split = Split::Out}))),
      k_(child<Linear>("k_proj", keys(s))),
      v_(child<Linear>("v_proj", keys(s))),
      o_(child<Linear>(
          "o_proj", queries(s, {.in = s.heads * s.head_dim, .out = s.hidden, .bias = s.out_bias, .split = Split::In}))),
      qkv_({&q_, &k_, &v_}) {
  if (!s.qk_norm) return;
  q_norm_ = &child<RmsNorm>("q_norm", s.head_dim, s.eps);
  k_norm_ = &child<RmsNorm>("k_norm", s.head_dim, s.eps);
}

at::Tensor Attention::operator()(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0), h = spec_.head_dim;
  const auto qkv = qkv_(x_TD, s);
  const int64_t heads = qkv[0].size(1) / h, kv_heads = qkv[1].size(1) / h;  // this rank's
  at::Tensor q = qkv[0].view({tokens, heads, h}), k = qkv[1].view({tokens, kv_heads, h});
  const at::Tensor v = qkv[2].view({tokens, kv_heads, h});
  if (q_norm_) q = (*q_norm_)(q), k = (*k_norm_)(k);
  std::tie(q, k) = ops::rope(q, k, s.cos, s.sin);

  const double scale = 1 / std::sqrt(static_cast<double>(h));
  const ops::Mask mask{.causal = true, .window = spec_.window};
  at::Tensor y;
  if (s.cache) {
    at::Tensor k_cache = s.cache->k(spec_.layer), v_cache = s.cache->v(spec_.layer);
    ops::store_kv(k, v, k_cache, v_cache, s.slot);
    y = ops::paged_attention(q, k_cache, v_cache, s.cu_q, s.cu_k, s.block_table, s.max_q, s.max_k, scale, mask);
  } else {
    Memo* const memo = memo_of(s, ResultKind::Attention);
    const bool again = memo && memo->again();
    ops::Attended result;
    if (again) {
      auto known = memo->recall(*this);
      result = {std::move(known[0]), std::move(known[1])};
    }
    y = ops::attention(q, k, v, s.cu_q, s.cu_k, s.max_q, s.max_k, scale, mask, memo ? &result : nullptr);
    if (memo && !again) memo->remember(*this, {result.out_TNH, result.lse_NT});
  }
  return o_(y.reshape({tokens, heads * h}), s);
}

}  // namespace apus
