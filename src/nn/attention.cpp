// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N query heads, K key-value heads, H head size.
#include "nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "dist/mesh.h"
#include "nn/distance.h"
#include "nn/largest_logit.h"
#include "nn/ring_attention.h"
#include "nn/steady.h"
#include "nn/token_groups.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/expert_pairs.h"
#include "ops/ops.h"

namespace apus {

namespace {
// Ranks take key-value heads with the query heads that look at them. Where ranks outnumber key-value heads, those that
// share one hold it each, and share out its query heads.
Cut by_query_heads(const Attention::Spec& s) {
  return {.axis = Axis::Tp, .dim = 0, .groups = s.kv_heads, .units = s.heads / s.kv_heads};
}
Cut by_keys(const Attention::Spec& s) { return {.axis = Axis::Tp, .dim = 0, .groups = s.kv_heads, .shared = true}; }
Linear::Spec queries(const Attention::Spec& s, Linear::Spec linear) {
  linear.cut = by_query_heads(s);
  return linear;
}
Linear::Spec keys(const Attention::Spec& s, int64_t size, bool bias) {
  return {.in = s.reads(), .out = s.kv_heads * size, .bias = bias, .split = Split::Out, .cut = by_keys(s)};
}

}  // namespace

at::Tensor neighbours_apart(const at::Tensor& x_TNH, int64_t n) {
  const int64_t t = x_TNH.size(0), heads = x_TNH.size(1), h = x_TNH.size(2);
  const at::Tensor turned = x_TNH.narrow(2, 0, n).reshape({t, heads, n / 2, 2}).transpose(2, 3).reshape({t, heads, n});
  return n == h ? turned : at::cat({turned, x_TNH.narrow(2, n, h - n)}, 2);
}

at::Tensor end_turned(const at::Tensor& x_TNH, const at::Tensor& cos_TR, const at::Tensor& sin_TR) {
  const int64_t turned = 2 * cos_TR.size(1), still = x_TNH.size(2) - turned;
  const auto wide = x_TNH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor pair = x_TNH.narrow(2, still, turned).to(wide).unflatten(2, {turned / 2, 2}), a = pair.select(3, 0),
                   b = pair.select(3, 1), cos = cos_TR.unsqueeze(1), sin = sin_TR.unsqueeze(1);
  const at::Tensor end = at::stack({a * cos - b * sin, b * cos + a * sin}, 3).flatten(2).to(x_TNH.scalar_type());
  return still == 0 ? end : at::cat({x_TNH.narrow(2, 0, still), end}, 2);
}

at::Tensor each_head(const at::Tensor& x_TNI, const at::Tensor& stack) {
  const int64_t tokens = x_TNI.size(0), heads = x_TNI.size(1);
  const at::Tensor rows = x_TNI.transpose(0, 1).reshape({heads * tokens, x_TNI.size(2)});
  const at::Tensor ends = at::arange(1, heads + 1, at::kLong).mul(tokens).to(x_TNI.device());
  return ops::grouped_linear(rows, stack, ends).view({heads, tokens, stack.size(1)}).transpose(0, 1);
}

namespace {
// LongLoRA: each half of the heads over its own groups of tokens. The results of both are remembered for a second run.
at::Tensor over_groups(const Module& owner, const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                       const ops::AttentionRule& rule, const Step& s) {
  const TokenGroups& groups = *training_of(s).groups;
  const int64_t queries = q_TNH.size(1) / 2, keys = k_TKH.size(1) / 2;
  require(2 * queries == q_TNH.size(1) && 2 * keys == k_TKH.size(1) && !training_of(s).key_K.defined(), Fault::Usage,
          "--tuner_type longlora gives each half of the heads groups of its own: the model's ", q_TNH.size(1),
          " query heads and ", k_TKH.size(1), " key-value heads cannot be halved, or --share_prefix true is given");
  Memo* const memo = memo_of(s, ResultKind::Attention);
  const bool again = memo && memo->again();
  std::vector<at::Tensor> known = again ? memo->recall(owner) : std::vector<at::Tensor>(), kept, halves;
  for (const int64_t half : {0, 1}) {
    const TokenGroups::Half& group = half == 0 ? groups.plain : groups.shifted;
    ops::AttentionRule own = rule;
    if (own.sinks_N.defined()) own.sinks_N = own.sinks_N.narrow(0, half * queries, queries);
    ops::Attended result;
    if (again) result = {known[static_cast<size_t>(2 * half)], known[static_cast<size_t>(2 * half + 1)]};
    const auto part = [half](const at::Tensor& x, int64_t heads) {
      return x.narrow(1, half * heads, heads).contiguous();
    };
    halves.push_back(ops::attention(part(q_TNH, queries), part(k_TKH, keys), part(v_TKH, keys), group.cu, group.cu,
                                    group.longest, group.longest, own, memo ? &result : nullptr));
    if (memo && !again) kept.insert(kept.end(), {result.out_TNH, result.lse_NT});
  }
  if (memo && !again) memo->remember(owner, std::move(kept));
  return at::cat(halves, 1);
}
}  // namespace

at::Tensor AttentionBlock::over_packed(const at::Tensor& q_TNH, const at::Tensor& own_TKH, const at::Tensor& own_v_TKH,
                                       const ops::AttentionRule& rule, const Step& s) const {
  if (const auto& logits = training_of(s).logits) logits->look(q_TNH, own_TKH, rule.scale);
  if (training_of(s).groups) return over_groups(*this, q_TNH, own_TKH, own_v_TKH, rule, s);
  at::Tensor k_TKH = own_TKH, v_TKH = own_v_TKH;
  if (at::Tensor row_K = training_of(s).key_K; row_K.defined()) {
    require(!training_of(s).tokens, Fault::Usage,
            "--share_prefix true is not for tokens that processes share out (--sequence_parallel_size)");
    row_K = row_K.to(k_TKH.device());
    k_TKH = at::index_select(k_TKH, 0, row_K), v_TKH = at::index_select(v_TKH, 0, row_K);
  }
  Memo* const memo = memo_of(s, ResultKind::Attention);
  const bool again = memo && memo->again();
  ops::Attended result;
  if (again) {
    auto known = memo->recall(*this);
    result = {std::move(known[0]), std::move(known[1])};
  }
  ops::Attended* const kept = memo ? &result : nullptr;
  const auto& share = training_of(s).tokens;
  const at::Tensor y = share && share->ring()
                           ? ring_attention(q_TNH, k_TKH, v_TKH, rule, share->ring(), kept)
                           : ops::attention(q_TNH, k_TKH, v_TKH, s.cu_q, s.cu_k, s.max_q, s.max_k, rule, kept);
  if (memo && !again) memo->remember(*this, {result.out_TNH, result.lse_NT});
  return y;
}

std::vector<Linear*> Attention::projections() {
  const Spec& s = spec_;
  const int64_t q = s.heads * s.head_dim, k = s.kv_heads * s.head_dim;
  if (s.form.experts > 0) {
    experts_ = &child<QueryExperts>(
        "experts", QueryExperts::Spec{s.reads(), s.form.experts, s.form.per_token, s.kv_heads, s.head_dim});
    return {&child<Linear>("kv_proj", Linear::Spec{.in = s.reads(), .out = 2 * k, .bias = s.form.qkv_bias})};
  }
  if (s.form.fused != Fused::No)
    return {
        &child<Linear>(s.form.fused_name, Linear::Spec{.in = s.reads(), .out = q + 2 * k, .bias = s.form.qkv_bias})};
  std::vector<Linear*> made{&child<Linear>(
      s.form.q_name,
      queries(s, {.in = s.reads(), .out = s.form.gated ? 2 * q : q, .bias = s.form.qkv_bias, .split = Split::Out}))};
  if (borrows()) return made;
  made.push_back(&child<Linear>(s.form.k_name, keys(s, s.head_dim, s.form.qkv_bias && s.form.key_bias)));
  if (s.form.v_name) made.push_back(&child<Linear>(s.form.v_name, keys(s, value_dim(), s.form.qkv_bias)));
  return made;
}

Attention::Attention(Spec s)
    : spec_(s),
      qkv_(projections()),
      o_(experts_ ? nullptr
                  : &child<Linear>(s.form.out_name, queries(s, {.in = s.heads * value_dim(),
                                                                .out = s.hidden,
                                                                .bias = s.form.out_bias,
                                                                .split = Split::In}))) {
  if (s.form.gate_name)
    gate_ = &child<Linear>(
        s.form.gate_name,
        queries(s, {.in = s.reads(), .out = s.heads * (s.form.gates_heads ? 1 : s.head_dim), .split = Split::Out}));
  if (s.form.sinks) sinks_ = &param("sinks", {s.heads}, {by_query_heads(s)});
  if (!has_weights(s.form.qk_norm)) return;
  if (s.form.qk_norm == QkNorm::EachHead) {
    const bool apart = s.form.qk_norms_apart;
    q_norms_ = &child<HeadNorms>(qk_norm_name(s.form, true), s.heads, s.head_dim, s.norm, apart);
    k_norms_ = &child<HeadNorms>(qk_norm_name(s.form, false), s.kv_heads, s.head_dim, s.norm, apart);
    return;
  }
  const bool all = s.form.qk_norm == QkNorm::AllHeads;
  q_norm_ = &child<Norm>(qk_norm_name(s.form, true), s.head_dim * (all ? s.heads : 1), s.norm);
  if (!borrows()) k_norm_ = &child<Norm>(qk_norm_name(s.form, false), s.head_dim * (all ? s.kv_heads : 1), s.norm);
}

std::vector<at::Tensor> Attention::parts(const at::Tensor& qkv_TA) const {
  const int64_t k = spec_.kv_heads, n = spec_.heads, h = spec_.head_dim, each = n / k, tokens = qkv_TA.size(0);
  if (spec_.form.fused == Fused::Blocks) return qkv_TA.split_with_sizes({n * h, k * h, k * h}, 1);
  if (spec_.form.fused == Fused::Quarters) {
    const at::Tensor all = qkv_TA.view({tokens, 4, 3, n * h / 4});
    const auto third = [&](int64_t i) { return all.select(2, i).reshape({tokens, -1}); };
    return {third(0), third(2), third(1)};
  }
  std::vector<at::Tensor> out = qkv_TA.view({tokens, k, each + 2, h}).split_with_sizes({each, 1, 1}, 2);
  for (at::Tensor& part : out) part = part.reshape({tokens, -1});
  return out;
}

namespace {
// Slopes and positions as further numbers of queries and keys, whose products are slope * position / scale. Each is a
// sum of parts that bfloat16 holds exactly: the slope of three, the position of two.
std::tuple<at::Tensor, at::Tensor> with_positions(const at::Tensor& q_TNH, const at::Tensor& k_TKH,
                                                  const at::Tensor& position_T, const std::vector<double>& slopes,
                                                  double scale) {
  const int64_t tokens = q_TNH.size(0), heads = q_TNH.size(1), kv_heads = k_TKH.size(1);
  at::Tensor left_N = at::tensor(slopes, at::kDouble).div(scale);
  const at::Tensor low_T = position_T.remainder(256), high_T = position_T - low_T;
  std::vector<at::Tensor> of_queries, of_keys;
  for (int part = 0; part < 3; ++part) {
    const at::Tensor rounded_N = left_N.to(at::kBFloat16).to(at::kDouble);
    left_N = left_N - rounded_N;
    for (const at::Tensor& digit : {high_T, low_T}) of_queries.push_back(rounded_N), of_keys.push_back(digit);
  }
  while (std::ssize(of_keys) < kPositionNumbers) {
    of_queries.push_back(at::zeros_like(left_N)), of_keys.push_back(at::zeros_like(low_T));
  }
  const at::Tensor q_NP = at::stack(of_queries, 1).to(q_TNH.options()),
                   k_TP = at::stack(of_keys, 1).to(k_TKH.options());
  return {at::cat({q_TNH, q_NP.unsqueeze(0).expand({tokens, heads, -1})}, 2),
          at::cat({k_TKH, k_TP.unsqueeze(1).expand({-1, kv_heads, -1})}, 2)};
}
}  // namespace

at::Tensor Attention::values(const at::Tensor& made_TA, int64_t tokens) const {
  at::Tensor v_TKH = made_TA.reshape({tokens, -1, value_dim()});
  if (spec_.form.value_norm) v_TKH = rms_alone(v_TKH, spec_.norm.eps);
  if (spec_.form.value_scale != 1) v_TKH = v_TKH * spec_.form.value_scale;
  return value_dim() < spec_.head_dim ? at::constant_pad_nd(v_TKH, {0, spec_.head_dim - value_dim()}) : v_TKH;
}

// By their positions.
void Attention::turn(at::Tensor& q_TNH, at::Tensor& k_TKH, const Step& s) const {
  const Turn& turn = s.turns[static_cast<size_t>(spec_.turn)];
  const int64_t turned = 2 * turn.cos.size(1);
  if (spec_.neighbours) q_TNH = neighbours_apart(q_TNH, turned), k_TKH = neighbours_apart(k_TKH, turned);
  const auto [q, k] = ops::rope(q_TNH, k_TKH, turn.cos, turn.sin);
  if (turn.second_cos.defined()) {
    const auto [q2, k2] = ops::rope(q_TNH, k_TKH, turn.second_cos, turn.second_sin);
    const int64_t first = turned / 2, rest = spec_.head_dim - first;
    q_TNH = at::cat({q.narrow(2, 0, first), q2.narrow(2, first, rest)}, 2);
    k_TKH = at::cat({k.narrow(2, 0, first), k2.narrow(2, first, rest)}, 2);
  } else {
    q_TNH = q, k_TKH = k;
  }
  if (turn.query_T.defined()) q_TNH = q_TNH * turn.query_T.to(q_TNH.scalar_type()).view({-1, 1, 1});
  if (spec_.form.qk_norm == QkNorm::AloneAfterRope)
    q_TNH = rms_alone(q_TNH, spec_.norm.eps), k_TKH = rms_alone(k_TKH, spec_.norm.eps);
}

// Projected, normalised and turned by position; where ranks share out the tokens, all tokens of this rank's heads.
Attention::Heads Attention::heads(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0), h = spec_.head_dim;
  std::vector<at::Tensor> qkv = qkv_(x_TD, s);
  std::optional<QueryExperts::Chosen> chosen;
  if (experts_) {
    chosen = experts_->chosen(x_TD, s);
    const std::vector<at::Tensor> keys_and_values = qkv[0].chunk(2, 1);
    qkv = {experts_->queries(x_TD, *chosen), keys_and_values[0], keys_and_values[1]};
  }
  if (spec_.form.fused != Fused::No) qkv = parts(qkv[0]);
  if (const double clip = spec_.form.clip; clip > 0)
    for (at::Tensor& each : qkv) each = each.clamp(-clip, clip);
  at::Tensor q = qkv[0], gate;
  if (spec_.form.gated) {
    const at::Tensor both_TNH = q.reshape({tokens, -1, 2 * h});
    q = both_TNH.narrow(2, 0, h), gate = both_TNH.narrow(2, h, h).reshape({tokens, -1});
  }
  if (gate_) gate = (*gate_)(x_TD, s);
  if (borrows()) return borrowed(std::move(q), std::move(gate), s);
  at::Tensor k = qkv[1], v = values(qkv.back(), tokens);
  if (spec_.form.qk_norm == QkNorm::AllHeads) q = (*q_norm_)(q), k = (*k_norm_)(k);
  q = q.reshape({tokens, -1, h}), k = k.reshape({tokens, -1, h});
  if (const auto& share = training_of(s).tokens) {
    auto all = share->all_tokens({std::move(q), std::move(k), std::move(v)});
    q = std::move(all.q), k = std::move(all.k), v = std::move(all.v);
  }
  if (spec_.form.qk_norm == QkNorm::Head) q = (*q_norm_)(q), k = (*k_norm_)(k);
  if (q_norms_) q = (*q_norms_)(q), k = (*k_norms_)(k);
  if (spec_.turn >= 0) turn(q, k, s);
  if (spec_.form.qk_norm == QkNorm::HeadAfterRope) q = (*q_norm_)(q), k = (*k_norm_)(k);
  if (!spec_.form.slopes.empty()) {
    const auto& share = training_of(s).tokens;
    const at::Tensor position = share ? share->attended(s.position) : s.position;
    std::tie(q, k) = with_positions(q, k, position, spec_.form.slopes, rule(s).scale);
  }
  if (spec_.lends && !s.cache) s.beside->lent[spec_.layer] = {k, v};
  return {std::move(q), std::move(k), std::move(v), std::move(gate), std::move(chosen)};
}

// Queries alone; keys and values of another layer, where they do not lie in the cache.
Attention::Heads Attention::borrowed(at::Tensor q, at::Tensor gate, const Step& s) const {
  q = q.reshape({q.size(0), -1, spec_.head_dim});
  if (q_norm_) q = (*q_norm_)(q);
  at::Tensor aside = q.narrow(1, 0, 1);
  if (spec_.turn >= 0) turn(q, aside, s);
  if (s.cache) return {std::move(q), {}, {}, std::move(gate)};
  const std::vector<at::Tensor>& lent = s.beside->lent.at(spec_.borrows);
  const at::Device here = q.device();
  return {std::move(q), lent[0].to(here), lent[1].to(here), std::move(gate)};
}

ops::AttentionRule Attention::rule(const Step& s) const {
  const AttentionForm& form = spec_.form;
  const auto& share = training_of(s).tokens;
  at::Tensor sinks_N = sinks_ ? sinks_->data : at::Tensor();
  if (sinks_ && share) sinks_N = share->own_heads(sinks_N, spec_.kv_heads);
  return {.scale = form.scale > 0 ? form.scale : 1 / std::sqrt(static_cast<double>(spec_.head_dim)),
          .mask = {.causal = !form.both_ways, .window = form.both_ways ? -spec_.window : spec_.window},
          .softcap = form.softcap,
          .sinks_N = std::move(sinks_N)};
}

namespace {
// Keys that are gathered at a time.
constexpr int64_t kGatheredKeys = int64_t{1} << 18;

// Runs of queries over keys of their own, of which there are as many as runs times tokens: some runs at a time.
at::Tensor over_gathered(const at::Tensor& q_RNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH, const SeenAhead& a,
                         const ops::AttentionRule& rule) {
  const auto part = [&](int64_t query, int64_t queries, int64_t key, int64_t keys, const at::Tensor& cu_q,
                        const at::Tensor& cu_k) {
    const at::Tensor key_K = a.key_K.narrow(0, key, keys);
    return ops::attention(q_RNH.narrow(0, query, queries), at::index_select(k_TKH, 0, key_K),
                          at::index_select(v_TKH, 0, key_K), cu_q, cu_k, a.max_q, a.max_k, rule);
  };
  if (a.key_K.size(0) <= kGatheredKeys) return part(0, q_RNH.size(0), 0, a.key_K.size(0), a.cu_q, a.cu_k);
  const at::Tensor ends_q = a.cu_q.to(at::kCPU), ends_k = a.cu_k.to(at::kCPU);
  const int32_t *q = ends_q.data_ptr<int32_t>(), *k = ends_k.data_ptr<int32_t>();
  std::vector<at::Tensor> parts;
  for (int64_t first = 0, runs = ends_q.size(0) - 1; first < runs;) {
    int64_t last = first + 1;
    while (last < runs && k[last + 1] - k[first] <= kGatheredKeys) ++last;
    const auto ends = [&](const at::Tensor& cu) { return cu.narrow(0, first, last - first + 1) - cu[first]; };
    parts.push_back(part(q[first], q[last] - q[first], k[first], k[last] - k[first], ends(a.cu_q), ends(a.cu_k)));
    first = last;
  }
  return at::cat(parts, 0);
}
}  // namespace

// Queries that see what stands behind them in their run are answered anew.
at::Tensor Attention::with_runs(const at::Tensor& y_TNH, const Heads& now, const Step& s) const {
  if (!s.ahead || !spec_.ahead) return y_TNH;
  const SeenAhead& a = *s.ahead;
  ops::AttentionRule whole = rule(s);
  whole.mask.causal = false;
  if (a.max_k <= whole.mask.window)
    whole.mask.window = 0;  // it reaches all of them, and devices are quicker without it
  const at::Tensor q_RNH = at::index_select(now.q_TNH, 0, a.row_R);
  at::Tensor y_RNH;
  if (!s.cache) {
    y_RNH = over_gathered(q_RNH, now.k_TKH, now.v_TKH, a, whole);
  } else {
    const at::Tensor k_cache = s.cache->k(cached_layer()), v_cache = s.cache->v(cached_layer());
    y_RNH = a.key_K.defined()
                ? over_gathered(q_RNH, k_cache.flatten(0, 1), v_cache.flatten(0, 1), a, whole)
                : ops::paged_attention(q_RNH, k_cache, v_cache, a.cu_q, a.cu_k,
                                       at::index_select(s.block_table, 0, a.sequence), a.max_q, a.max_k, whole);
  }
  return at::index_copy(y_TNH, 0, a.row_R, y_RNH);
}

at::Tensor Attention::attended(const Heads& now, const Step& s) const {
  if (spec_.form.by_distance) return attention_by_distance(now.q_TNH, now.k_TKH, now.v_TKH, rule(s).scale, s);
  if (s.cache) {
    at::Tensor k_cache = s.cache->k(cached_layer()), v_cache = s.cache->v(cached_layer());
    const int64_t more = borrows() ? 0 : now.k_TKH.size(2) - now.v_TKH.size(2);
    if (!borrows())
      ops::store_kv(now.k_TKH, more > 0 ? at::constant_pad_nd(now.v_TKH, {0, more}) : now.v_TKH, k_cache, v_cache,
                    s.slot);
    const at::Tensor y_TNH = with_runs(
        ops::paged_attention(now.q_TNH, k_cache, v_cache, s.cu_q, s.cu_k, s.block_table, s.max_q, s.max_k, rule(s)),
        now, s);
    return more > 0 ? y_TNH.narrow(2, 0, now.v_TKH.size(2)) : y_TNH;
  }
  return with_runs(over_packed(now.q_TNH, now.k_TKH, now.v_TKH, rule(s), s), now, s);
}

at::Tensor Attention::gated(const at::Tensor& y_TA, const at::Tensor& gate_TA) const {
  const at::Tensor gate = spec_.form.gates_by_softplus ? steady_softplus(gate_TA) : steady_sigmoid(gate_TA);
  if (!spec_.form.gates_heads) return y_TA * gate;
  return (y_TA.view({y_TA.size(0), gate.size(1), -1}) * gate.unsqueeze(-1)).flatten(1);
}

at::Tensor Attention::operator()(const at::Tensor& x_TD, const Step& s) const {
  const AttentionForm& form = spec_.form;
  const Heads now = heads(form.in_scale == 1 ? x_TD : x_TD * form.in_scale, s);
  at::Tensor y_TNH = attended(now, s);
  if (const auto& share = training_of(s).tokens) {
    const auto own = [&](int64_t heads, Cut cut) {
      return mesh() ? part_of(heads, cut, mesh()->rank(Axis::Tp), mesh()->size(Axis::Tp)).size : heads;
    };
    y_TNH = share->own_tokens(y_TNH, own(spec_.heads, by_query_heads(spec_)), own(spec_.kv_heads, by_keys(spec_)));
  }
  if (value_dim() < spec_.head_dim) y_TNH = y_TNH.narrow(2, 0, value_dim());
  at::Tensor y_TA = y_TNH.reshape({x_TD.size(0), -1});
  if (now.gate_TA.defined()) y_TA = gated(y_TA, now.gate_TA);
  const at::Tensor y_TD = now.chosen ? experts_->joined(y_TA, *now.chosen) : (*o_)(y_TA, s);
  return form.out_scale == 1 ? y_TD : y_TD * form.out_scale;
}

}  // namespace apus
