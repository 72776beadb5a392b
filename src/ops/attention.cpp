// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences and over a paged cache. The reference works on one sequence at a time, in chunks of
// queries, all heads of a group at once, in f32: its largest temporary is `score_limit` scores. The backward pass
// recomputes the probabilities of a chunk from the saved log-sum-exp. A sink is one more term of that sum; nothing else
// of the forward or backward pass knows of it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "ops/attention_part.h"
#include "ops/attention_signature.h"
#include "ops/coded_cache.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr int64_t score_limit = int64_t{4} << 20;
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// Cumulative lengths on the host.
struct Lengths {
  explicit Lengths(const at::Tensor& cu)
      : host(cu.to(at::kCPU, at::kLong).contiguous()), at(host.data_ptr<int64_t>()) {}
  int64_t sequences() const { return host.numel() - 1; }
  int64_t begin(int64_t s) const { return at[s]; }
  int64_t size(int64_t s) const { return at[s + 1] - at[s]; }
  at::Tensor host;
  const int64_t* at;
};

// Queries [begin, begin + count) of a sequence and the keys [low, low + keys) that any of them sees.
struct Chunk {
  int64_t begin, count, low, keys;
  // [count, keys], true where the query must not look; undefined: it sees all of them.
  at::Tensor hidden;
};

struct Sequence {
  int64_t q, k;
  Mask mask;
  int64_t offset() const { return k - q; }  // position of the first query

  Chunk chunk(int64_t begin, int64_t count, const at::TensorOptions& options) const {
    const int64_t first = offset() + begin, last = first + count - 1;
    const int64_t width = std::abs(mask.window), reach = mask.causal ? 1 : mask.window < 0 ? width : 0;  // 0: all
    const int64_t low = width > 0 ? std::clamp<int64_t>(first - width + 1, 0, k) : 0;
    const int64_t high = reach > 0 ? std::clamp<int64_t>(last + reach, low, k) : k;
    Chunk c{begin, count, low, high - low, {}};
    const bool cut_above = reach > 0 && high - reach > first, cut_below = width > 0 && last - low >= width;
    if (c.keys == 0 || (!cut_above && !cut_below)) return c;
    const at::Tensor position = at::arange(first, last + 1, options).unsqueeze(1),
                     key = at::arange(low, high, options).unsqueeze(0);
    if (cut_above) c.hidden = key - position >= reach;
    if (cut_below) c.hidden = c.hidden.defined() ? c.hidden | (position - key >= width) : position - key >= width;
    return c;
  }

  template <class Fn>
  void for_chunks(int64_t heads, const at::Device& device, Fn&& fn) const {
    const int64_t step = std::max<int64_t>(1, score_limit / std::max<int64_t>(1, heads * k));
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kLong);
    for (int64_t begin = 0; begin < q; begin += step) fn(chunk(begin, std::min(step, q - begin), options));
  }
};

// [count, N, H] -> [K, G * count, H], G = N / K query heads sharing a key head; and back.
at::Tensor by_group(const at::Tensor& x_tNH, int64_t k_heads) {
  const int64_t t = x_tNH.size(0), h = x_tNH.size(2), g = x_tNH.size(1) / k_heads;
  return x_tNH.reshape({t, k_heads, g, h}).permute({1, 2, 0, 3}).reshape({k_heads, g * t, h});
}
at::Tensor by_token(const at::Tensor& x_KgtH, int64_t t) {
  const int64_t k_heads = x_KgtH.size(0), g = x_KgtH.size(1) / t, h = x_KgtH.size(2);
  return x_KgtH.reshape({k_heads, g, t, h}).permute({2, 0, 1, 3}).reshape({t, k_heads * g, h});
}

// The numbers of an AttentionRule.
struct Bend {
  double scale, softcap;
};

// Scaled scores of a chunk [K, G * count, keys]; q [K, G * count, H], k [K, keys, H]. slope: receives by how much a
// bent score grows with the one it was made of.
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const Bend& bend, const Chunk& c,
                  at::Tensor* slope = nullptr) {
  at::Tensor s = at::bmm(q, k.transpose(1, 2)).mul_(bend.scale);
  if (bend.softcap > 0) {
    s.div_(bend.softcap).tanh_();
    if (slope) *slope = 1 - s * s;
    s.mul_(bend.softcap);
  }
  if (c.hidden.defined()) s.view({s.size(0), -1, c.count, c.keys}).masked_fill_(c.hidden, minus_infinity);
  return s;
}

// exp(scores - lse), 0 where a query sees nothing.
at::Tensor probabilities(at::Tensor s, const at::Tensor& lse) {
  return s.sub_(lse.masked_fill(lse == minus_infinity, 0).unsqueeze(-1)).exp_();
}

// [N] as it stands beside the scores of a chunk by group: [K, G * count].
at::Tensor beside_scores(const at::Tensor& sinks_N, int64_t k_heads, int64_t count) {
  return sinks_N.reshape({-1, 1}).expand({-1, count}).reshape({k_heads, -1});
}

// One sequence; writes into out [q, N, Hv] and lse [N, q].
void forward_sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor out, at::Tensor lse,
                      const Bend& bend, const Mask& mask, const OptionalTensor& sinks) {
  const int64_t heads = q.size(1), k_heads = k.size(1);
  const at::Tensor keys = widen(k).transpose(0, 1).contiguous(), values = widen(v).transpose(0, 1).contiguous();
  Sequence{q.size(0), k.size(0), mask}.for_chunks(heads, q.device(), [&](const Chunk& c) {
    if (c.keys == 0) return;  // out and lse already say so
    const at::Tensor s =
        scores(by_group(widen(q.narrow(0, c.begin, c.count)), k_heads), keys.narrow(1, c.low, c.keys), bend, c);
    at::Tensor sum = at::logsumexp(s, -1);
    if (sinks.has_value()) sum = at::logaddexp(sum, beside_scores(sinks->to(sum.scalar_type()), k_heads, c.count));
    const at::Tensor y = at::bmm(probabilities(s, sum), values.narrow(1, c.low, c.keys));
    out.narrow(0, c.begin, c.count).copy_(by_token(y, c.count));
    lse.narrow(1, c.begin, c.count).copy_(sum.view({heads, c.count}));
  });
}

at::Tensor zeros_like_queries(const at::Tensor& q, int64_t head_size) {
  return at::zeros({q.size(0), q.size(1), head_size}, q.options());
}

Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
             const at::Tensor& cu_k, int64_t, int64_t, double scale, bool causal, int64_t window, double softcap,
             const OptionalTensor& sinks) {
  at::Tensor out = zeros_like_queries(q, v.size(2));
  at::Tensor lse = at::full({q.size(1), q.size(0)}, minus_infinity, q.options().dtype(wide_type(q)));
  if (sinks.has_value()) lse.copy_(sinks->unsqueeze(1).expand(lse.sizes()));
  const Lengths queries(cu_q), keys(cu_k);
  for (int64_t s = 0; s < queries.sequences(); ++s) {
    const int64_t q0 = queries.begin(s), nq = queries.size(s), k0 = keys.begin(s), nk = keys.size(s);
    forward_sequence(q.narrow(0, q0, nq), k.narrow(0, k0, nk), v.narrow(0, k0, nk), out.narrow(0, q0, nq),
                     lse.narrow(1, q0, nq), {scale, softcap}, {causal, window}, sinks);
  }
  return {out, lse};
}

// One sequence; writes into dq, dk, dv. delta [q, N] is sum(out * grad) per query and head.
void backward_sequence(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& delta, const at::Tensor& lse, at::Tensor dq, at::Tensor dk, at::Tensor dv,
                       const Bend& bend, const Mask& mask) {
  const int64_t k_heads = k.size(1);
  const at::Tensor keys = widen(k).transpose(0, 1).contiguous(), values = widen(v).transpose(0, 1).contiguous();
  at::Tensor sum_dk = at::zeros(keys.sizes(), keys.options()), sum_dv = at::zeros(values.sizes(), values.options());
  Sequence{q.size(0), k.size(0), mask}.for_chunks(q.size(1), q.device(), [&](const Chunk& c) {
    if (c.keys == 0) return;
    const auto group = [&](const at::Tensor& x) { return by_group(widen(x.narrow(0, c.begin, c.count)), k_heads); };
    const at::Tensor chunk_q = group(q), chunk_grad = group(grad), chunk_keys = keys.narrow(1, c.low, c.keys);
    const at::Tensor chunk_lse = lse.narrow(1, c.begin, c.count).reshape({k_heads, -1});
    at::Tensor slope;
    const at::Tensor p = probabilities(scores(chunk_q, chunk_keys, bend, c, &slope), chunk_lse);
    sum_dv.narrow(1, c.low, c.keys).add_(at::bmm(p.transpose(1, 2), chunk_grad));
    const at::Tensor dp = at::bmm(chunk_grad, values.narrow(1, c.low, c.keys).transpose(1, 2));
    at::Tensor ds = (dp - group(delta.unsqueeze(-1))).mul_(p).mul_(bend.scale);
    if (slope.defined()) ds.mul_(slope);
    dq.narrow(0, c.begin, c.count).copy_(by_token(at::bmm(ds, chunk_keys), c.count));
    sum_dk.narrow(1, c.low, c.keys).add_(at::bmm(ds.transpose(1, 2), chunk_q));
  });
  dk.copy_(sum_dk.transpose(0, 1));
  dv.copy_(sum_dv.transpose(0, 1));
}

Triple backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& cu_q, const at::Tensor& cu_k, int64_t,
                int64_t, double scale, bool causal, int64_t window, double softcap, const OptionalTensor&) {
  at::Tensor dq = at::zeros(q.sizes(), q.options()), dk = at::zeros(k.sizes(), k.options()),
             dv = at::zeros(v.sizes(), v.options());
  const at::Tensor delta = (widen(out) * widen(grad)).sum(-1);
  const Lengths queries(cu_q), keys(cu_k);
  for (int64_t s = 0; s < queries.sequences(); ++s) {
    const int64_t q0 = queries.begin(s), nq = queries.size(s), k0 = keys.begin(s), nk = keys.size(s);
    backward_sequence(grad.narrow(0, q0, nq), q.narrow(0, q0, nq), k.narrow(0, k0, nk), v.narrow(0, k0, nk),
                      delta.narrow(0, q0, nq), lse.narrow(1, q0, nq), dq.narrow(0, q0, nq), dk.narrow(0, k0, nk),
                      dv.narrow(0, k0, nk), {scale, softcap}, {causal, window});
  }
  return {dq, dk, dv};
}

// The blocks of these sequences, made plain.
at::Tensor paged_codes(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                       const at::Tensor& cu_q, const at::Tensor& cu_k, const at::Tensor& block_table, int64_t max_q,
                       int64_t max_k, double scale, bool causal, int64_t window, double softcap,
                       const OptionalTensor& sinks) {
  static const auto op = handle<attention_signature::Paged>("apus::paged_attention");
  const int64_t used = std::min(block_table.size(1), (max_k + k_cache.size(1) - 1) / k_cache.size(1));
  const at::Tensor block = block_table.narrow(1, 0, used).reshape({-1}).to(at::kLong),
                   keys = plain_blocks(k_cache, block, q.scalar_type());
  const bool part = v_cache.data_ptr() == k_cache.data_ptr();
  const at::Tensor values =
      part ? keys.narrow(3, 0, head_size(v_cache)) : plain_blocks(v_cache, block, q.scalar_type());
  const at::Tensor table = at::arange(block.size(0), block_table.options().dtype(at::kInt)).view({-1, used});
  return op.call(q, keys, values, cu_q, cu_k, table, max_q, max_k, scale, causal, window, softcap, sinks);
}

at::Tensor paged(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const at::Tensor& cu_q,
                 const at::Tensor& cu_k, const at::Tensor& block_table, int64_t max_q, int64_t max_k, double scale,
                 bool causal, int64_t window, double softcap, const OptionalTensor& sinks) {
  if (is_coded(k_cache))
    return paged_codes(q, k_cache, v_cache, cu_q, cu_k, block_table, max_q, max_k, scale, causal, window, softcap,
                       sinks);
  at::Tensor out = zeros_like_queries(q, v_cache.size(3));
  at::Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(wide_type(q)));
  const Lengths queries(cu_q), keys(cu_k);
  const int64_t block = k_cache.size(1);
  for (int64_t s = 0; s < queries.sequences(); ++s) {
    const int64_t q0 = queries.begin(s), nq = queries.size(s), nk = keys.size(s);
    const at::Tensor blocks = block_table.select(0, s).narrow(0, 0, (nk + block - 1) / block).to(at::kLong);
    const auto gather = [&](const at::Tensor& cache) {
      return cache.index_select(0, blocks).flatten(0, 1).narrow(0, 0, nk);
    };
    forward_sequence(q.narrow(0, q0, nq), gather(k_cache), gather(v_cache), out.narrow(0, q0, nq),
                     lse.narrow(1, q0, nq), {scale, softcap}, {causal, window}, sinks);
  }
  return out;
}

Pair forward_shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor&, const at::Tensor&,
                   int64_t, int64_t, double, bool, int64_t, double, const OptionalTensor&) {
  return {at::empty({q.size(0), q.size(1), v.size(2)}, q.options()),
          at::empty({q.size(1), q.size(0)}, q.options().dtype(wide_type(q)))};
}
Triple backward_shape(const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t,
                      double, bool, int64_t, double, const OptionalTensor&) {
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  return {like(q), like(k), like(v)};
}
at::Tensor paged_shape(const at::Tensor& q, const at::Tensor&, const at::Tensor& v_cache, const at::Tensor&,
                       const at::Tensor&, const at::Tensor&, int64_t, int64_t, double, bool, int64_t, double,
                       const OptionalTensor&) {
  return at::empty({q.size(0), q.size(1), v_cache.size(3)}, q.options());
}

const auto& attention_op() {
  static const auto op = handle<decltype(forward)>("apus::attention");
  return op;
}

// From an earlier run; wrapped, as these are no inputs that gradients could belong to.
struct Known {
  Attended result;
};

struct Attention : torch::autograd::Function<Attention> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
                                                const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale,
                                                bool causal, int64_t window, double softcap,
                                                const OptionalTensor& sinks, const Known& known) {
    const BelowAutograd guard;
    at::Tensor out = known.result.out_TNH, lse = known.result.lse_NT;
    if (!out.defined())
      std::tie(out, lse) =
          attention_op().call(q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
    ctx->save_for_backward({q, k, v, cu_q, cu_k, out, lse, or_undefined(sinks)});
    ctx->mark_non_differentiable({lse});
    ctx->saved_data["max_q"] = max_q;
    ctx->saved_data["max_k"] = max_k;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["window"] = window;
    ctx->saved_data["softcap"] = softcap;
    return {out, lse};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::attention_backward");
    const BelowAutograd guard;
    const auto x = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    const at::Tensor &out = x[5], &lse = x[6], &sinks = x[7];
    auto [dq, dk, dv] = op.call(grad[0], x[0], x[1], x[2], out, lse, x[3], x[4], data["max_q"].toInt(),
                                data["max_k"].toInt(), data["scale"].toDouble(), data["causal"].toBool(),
                                data["window"].toInt(), data["softcap"].toDouble(), maybe(sinks));
    const at::Tensor dsinks = requires_grad(sinks) ? sinks_gradient(grad[0], {out, lse}, sinks) : at::Tensor();
    return {dq, dk, dv, {}, {}, {}, {}, {}, {}, {}, {}, dsinks, {}};
  }
};

Pair attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
                        const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window,
                        double softcap, const OptionalTensor& sinks) {
  if (any_requires_grad(q, k, v, sinks)) {
    const auto out =
        Attention::apply(q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks, Known{});
    return {out[0], out[1]};
  }
  const BelowAutograd guard;
  return attention_op().call(q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
}

// Here and not in the kernels, so that every device's are spared the check and none forgets it.
void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t k_heads) {
  require(q.dim() == 3 && k.dim() == v.dim() && k.size(-1) == q.size(-1), Fault::Bug, "attention: queries of ", q.dim(),
          " dimensions and heads of ", q.size(-1), " against keys of ", k.dim(), " and ", k.size(-1));
  require(k_heads > 0 && q.size(1) % k_heads == 0, Fault::Bug, "attention: ", q.size(1), " query heads cannot share ",
          k_heads, " key heads");
}

}  // namespace

at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH, const at::Tensor& cu_q,
                     const at::Tensor& cu_k, int64_t max_q, int64_t max_k, const AttentionRule& rule, Attended* kept) {
  check(q_TNH, k_TKH, v_TKH, k_TKH.size(1));
  const auto& [scale, mask, softcap, sinks_N] = rule;
  if (kept && kept->out_TNH.defined()) {
    if (!any_requires_grad(q_TNH, k_TKH, v_TKH, sinks_N)) return kept->out_TNH;
    return Attention::apply(q_TNH, k_TKH, v_TKH, cu_q, cu_k, max_q, max_k, scale, mask.causal, mask.window, softcap,
                            maybe(sinks_N), Known{std::move(*kept)})[0];
  }
  auto [out, lse] = attention_op().call(q_TNH, k_TKH, v_TKH, cu_q, cu_k, max_q, max_k, scale, mask.causal, mask.window,
                                        softcap, maybe(sinks_N));
  if (kept) *kept = {out, lse};
  return out;
}

at::Tensor paged_attention(const at::Tensor& q_TNH, const at::Tensor& k_cache, const at::Tensor& v_cache,
                           const at::Tensor& cu_q, const at::Tensor& cu_k, const at::Tensor& block_table, int64_t max_q,
                           int64_t max_k, const AttentionRule& rule) {
  static const auto op = handle<decltype(paged)>("apus::paged_attention");
  check(q_TNH, is_coded(k_cache) ? k_cache.narrow(3, 0, k_cache.size(3) - kCacheScale) : k_cache, v_cache,
        k_cache.size(2));
  const BelowAutograd guard;
  return op.call(q_TNH, k_cache, v_cache, cu_q, cu_k, block_table, max_q, max_k, rule.scale, rule.mask.causal,
                 rule.mask.window, rule.softcap, maybe(rule.sinks_N));
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> out [T, N, H], lse [N, T] f32: natural log of the sum of exp(scores), a head's sink ([N]) among them,
  // -inf where a query sees nothing (out 0 there).
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, int max_q, int max_k, float scale, bool "
      "causal, int window, float softcap, Tensor? sinks) -> (Tensor, Tensor)");
  // -> dq, dk, dv. What sinks change stands in out and lse; they are given so that a device sees who made these.
  m.def(
      "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor cu_q, Tensor cu_k, "
      "int max_q, int max_k, float scale, bool causal, int window, float softcap, Tensor? sinks) -> (Tensor, Tensor, "
      "Tensor)");
  // The same of some of the keys that queries see: lse is [N, T] on every device, whatever it keeps for its own
  // gradient, and the gradient takes that of all keys together.
  m.def(
      "attention_part(Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, int max_q, int max_k, float scale, bool "
      "causal, int window, float softcap, Tensor? sinks) -> (Tensor, Tensor)");
  m.def(
      "attention_part_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor cu_q, Tensor "
      "cu_k, int max_q, int max_k, float scale, bool causal, int window, float softcap, Tensor? sinks) -> (Tensor, "
      "Tensor, Tensor)");
  m.def(
      "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor cu_q, Tensor cu_k, Tensor block_table, int "
      "max_q, int max_k, float scale, bool causal, int window, float softcap, Tensor? sinks) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("attention", apus::ops::forward);
  m.impl("attention_backward", apus::ops::backward);
  m.impl("attention_part", apus::ops::forward);
  m.impl("attention_part_backward", apus::ops::backward);
  m.impl("paged_attention", apus::ops::paged);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("attention", apus::ops::forward_shape);
  m.impl("attention_backward", apus::ops::backward_shape);
  m.impl("attention_part", apus::ops::forward_shape);
  m.impl("attention_part_backward", apus::ops::backward_shape);
  m.impl("paged_attention", apus::ops::paged_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("attention", apus::ops::attention_autograd); }
