// SPDX-License-Identifier: Apache-2.0
// Shapes: t this rank's tokens, N query heads, K key-value heads, H the size of keys, V that of values.
#include "nn/ring_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "nn/capsule.h"
#include "ops/op.h"

namespace apus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// How much of a joined answer is this one's, [T, N, 1].
at::Tensor share_of(const at::Tensor& lse_NT, const at::Tensor& of_both_NT) {
  const at::Tensor share_NT = at::exp(lse_NT - of_both_NT.masked_fill(of_both_NT == kNothing, 0));
  return share_NT.t().unsqueeze(-1);
}

}  // namespace

ops::Attended joined(const ops::Attended& a, const ops::Attended& b) {
  const at::Tensor lse_NT = at::logaddexp(a.lse_NT, b.lse_NT);
  return {a.out_TNH * share_of(a.lse_NT, lse_NT) + b.out_TNH * share_of(b.lse_NT, lse_NT), lse_NT};
}

Ring::Ring(Comm& ranks, int step, const std::vector<int32_t>& lengths) : ranks_(ranks), step_(step) {
  for (int r = 0; r < ranks.size() / step; ++r) runs_.push_back(zigzag(lengths, r, ranks.size() / step));
}

namespace {

at::Tensor numbers(const std::vector<int64_t>& list, at::ScalarType type, at::Device device) {
  return at::tensor(list, at::kLong).to(type).to(device);
}

struct Lengths {
  at::Tensor cumulative;
  int64_t longest = 0;
};
Lengths lengths_of(const std::vector<Range>& ranges, at::Device device) {
  std::vector<int64_t> ends{0};
  Lengths out;
  for (const Range& r : ranges) ends.push_back(ends.back() + r.size), out.longest = std::max(out.longest, r.size);
  out.cumulative = numbers(ends, at::kInt, device);
  return out;
}

// Undefined where they are 0, 1, ..., all - 1.
at::Tensor rows_of(const std::vector<Range>& ranges, int64_t all, at::Device device) {
  std::vector<int64_t> rows;
  bool in_order = true;
  for (const Range& r : ranges)
    for (int64_t i = r.begin; i < r.begin + r.size; ++i) in_order &= i == std::ssize(rows), rows.push_back(i);
  return in_order && std::ssize(rows) == all ? at::Tensor() : numbers(rows, at::kLong, device);
}

}  // namespace

const std::vector<Ring::Call>& Ring::calls(int of_keys, const ops::Mask& mask, at::Device device) const {
  const auto [found, made] = calls_.try_emplace({of_keys, mask.window, device.index()});
  if (!made) return found->second;
  for (const RingCall& c : ring_calls(runs(rank()), runs(of_keys), mask)) {
    const Lengths q = lengths_of(c.q, device), k = lengths_of(c.k, device);
    found->second.push_back({c.mask,
                             {q.cumulative, k.cumulative, q.longest, k.longest},
                             rows_of(c.q, tokens_of(rank()), device),
                             rows_of(c.k, tokens_of(of_keys), device)});
  }
  return found->second;
}

const std::vector<int>& Ring::steps(const ops::Mask& mask) const {
  const auto [found, made] = steps_.try_emplace(mask.window);
  if (!made) return found->second;
  for (int step = 0; step < size(); ++step) {
    bool seen = false;
    for (int r = 0; r < size() && !seen; ++r) seen = look_at(runs(r), runs((r - step + size()) % size()), mask);
    if (seen) found->second.push_back(step);
  }
  return found->second;
}

// All ranks exchange at once, though each with two others alone: a line of sends and receives would wait in a circle.
Ring::OnTheWay Ring::hand_on(const at::Tensor& flat, int hop, int64_t numbers) const {
  const at::Tensor none = at::empty({0}, flat.options()), received = at::empty({numbers}, flat.options());
  std::vector<at::Tensor> out(static_cast<size_t>(ranks_.size()), none), in = out;
  const int line = ranks_.rank() % step_;
  in[static_cast<size_t>(before(size() - hop) * step_ + line)] = flat;
  out[static_cast<size_t>(before(hop) * step_ + line)] = received;
  return {ranks_.all_to_all(std::move(out), std::move(in)), flat, received};
}

namespace {

// Keys and values of so many tokens one behind the other, or their gradients.
struct KeysAndValues {
  at::Tensor k, v;
};
struct Shape {
  Shape(const at::Tensor& k_tKH, const at::Tensor& v_tKV) : heads(k_tKH.size(1)), k(k_tKH.size(2)), v(v_tKV.size(2)) {}
  int64_t numbers(int64_t tokens) const { return tokens * heads * (k + v); }
  KeysAndValues parts(const at::Tensor& flat, int64_t tokens) const {
    const int64_t keys = tokens * heads * k;
    return {flat.narrow(0, 0, keys).view({tokens, heads, k}),
            flat.narrow(0, keys, tokens * heads * v).view({tokens, heads, v})};
  }
  int64_t heads, k, v;
};

at::Tensor chosen(const at::Tensor& x, const at::Tensor& rows, int64_t dim = 0) {
  return rows.defined() ? at::index_select(x, dim, rows) : x;
}
ops::Attended chosen(const ops::Attended& x, const at::Tensor& rows) {
  return {chosen(x.out_TNH, rows), chosen(x.lse_NT, rows, 1)};
}
void add_to(const at::Tensor& sum, const at::Tensor& part, const at::Tensor& rows) {
  const at::Tensor wide = part.to(sum.scalar_type());
  rows.defined() ? sum.index_add_(0, rows, wide) : sum.add_(wide);
}

// Sinks are seen once, by the calls in which every query is once.
ops::AttentionRule rule_of(const Ring::Call& call, ops::AttentionRule rule) {
  rule.mask = call.mask;
  if (!call.mask.causal) rule.sinks_N = at::Tensor();
  return rule;
}

// Where keys and values stand still on their way round, seen from one rank: whose this rank has then, how far they go
// next, and whose come. Behind the last stop it is sums of gradients alone that go on, home.
struct Stop {
  int owner, hop, next;
  bool last;
};
std::vector<Stop> stops(const Ring& ring, const ops::Mask& mask) {
  const std::vector<int>& steps = ring.steps(mask);
  std::vector<Stop> out;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    const int then = last ? ring.size() : steps[i + 1];
    out.push_back({ring.before(steps[i]), then - steps[i], ring.before(then), last});
  }
  return out;
}

ops::Attended asked_around(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const ops::AttentionRule& rule, const Ring& ring) {
  const Shape shape(k, v);
  const auto wide = q.options().dtype(ops::wide_type(q));
  ops::Attended all{at::zeros({q.size(0), q.size(1), shape.v}, wide), at::full({q.size(1), q.size(0)}, kNothing, wide)};
  at::Tensor held = at::cat({k.reshape({-1}), v.reshape({-1})});
  for (const Stop& stop : stops(ring, rule.mask)) {
    std::optional<Ring::OnTheWay> next;
    if (!stop.last) next = ring.hand_on(held, stop.hop, shape.numbers(ring.tokens_of(stop.next)));
    const KeysAndValues seen = shape.parts(held, ring.tokens_of(stop.owner));
    for (const Ring::Call& call : ring.calls(stop.owner, rule.mask, q.device())) {
      const ops::Attended part = ops::attention_part(chosen(q, call.row_q), chosen(seen.k, call.row_k),
                                                     chosen(seen.v, call.row_k), call.runs, rule_of(call, rule)),
                          sum = joined(chosen(all, call.row_q), part);
      if (call.row_q.defined())
        all.out_TNH.index_copy_(0, call.row_q, sum.out_TNH), all.lse_NT.index_copy_(1, call.row_q, sum.lse_NT);
      else
        all = sum;
    }
    if (next) held = next->arrived();
  }
  return {all.out_TNH.to(q.scalar_type()), all.lse_NT};
}

// Beside keys and values go the sums of their gradients, one step behind, which so come home at the end.
ops::AttentionGradient gradient_around(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const ops::Attended& whole, const ops::AttentionRule& rule,
                                       const Ring& ring) {
  const Shape shape(k, v);
  const auto wide = q.options().dtype(ops::wide_type(q));
  const at::Tensor dq = at::zeros(q.sizes(), wide);
  at::Tensor held = at::cat({k.reshape({-1}), v.reshape({-1})});
  std::optional<Ring::OnTheWay> sums;
  for (const Stop& stop : stops(ring, rule.mask)) {
    const int64_t tokens = ring.tokens_of(stop.owner), numbers = shape.numbers(ring.tokens_of(stop.next));
    std::optional<Ring::OnTheWay> next;
    if (!stop.last) next = ring.hand_on(held, stop.hop, numbers);
    const KeysAndValues seen = shape.parts(held, tokens);
    const at::Tensor own = at::zeros({shape.numbers(tokens)}, wide);
    const KeysAndValues sum = shape.parts(own, tokens);
    for (const Ring::Call& call : ring.calls(stop.owner, rule.mask, q.device())) {
      const ops::AttentionGradient d = ops::attention_part_gradient(
          chosen(grad, call.row_q), chosen(q, call.row_q), chosen(seen.k, call.row_k), chosen(seen.v, call.row_k),
          chosen(whole, call.row_q), call.runs, rule_of(call, rule));
      add_to(dq, d.q_TNH, call.row_q), add_to(sum.k, d.k_TKH, call.row_k), add_to(sum.v, d.v_TKH, call.row_k);
    }
    if (sums) own.add_(sums->arrived());
    sums = ring.hand_on(own, stop.hop, numbers);
    if (next) held = next->arrived();
  }
  const KeysAndValues home = shape.parts(sums->arrived(), k.size(0));
  return {dq.to(q.scalar_type()), home.k.to(k.scalar_type()), home.v.to(v.scalar_type())};
}

// What a pass leaves for its gradient besides tensors, sinks among these; and a result that is there already.
struct Around {
  std::shared_ptr<const Ring> ring;
  ops::AttentionRule rule;
};
struct KnownAnswer {
  ops::Attended result;
};

struct RingAttention : torch::autograd::Function<RingAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const OptionalTensor& sinks, const Around& around, const KnownAnswer& known) {
    ops::Attended out = known.result;
    if (!out.out_TNH.defined()) {
      ops::AttentionRule rule = around.rule;
      rule.sinks_N = or_undefined(sinks);
      out = asked_around(q, k, v, rule, *around.ring);
    }
    ctx->save_for_backward({q, k, v, out.out_TNH, out.lse_NT, or_undefined(sinks)});
    ctx->mark_non_differentiable({out.lse_NT});
    ctx->saved_data["around"] = encapsulated(around);
    return {out.out_TNH, out.lse_NT};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grad) {
    const Around& around = held<Around>(ctx->saved_data["around"]);
    const auto x = ctx->get_saved_variables();
    const ops::Attended whole{x[3], x[4]};
    ops::AttentionRule rule = around.rule;
    rule.sinks_N = x[5];
    const auto d = gradient_around(grad[0].contiguous(), x[0], x[1], x[2], whole, rule, *around.ring);
    const at::Tensor dsinks = ops::requires_grad(x[5]) ? ops::sinks_gradient(grad[0], whole, x[5]) : at::Tensor();
    return {d.q_TNH, d.k_TKH, d.v_TKH, dsinks, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& q_tNH, const at::Tensor& k_tKH, const at::Tensor& v_tKV,
                          const ops::AttentionRule& rule, const std::shared_ptr<const Ring>& ring,
                          ops::Attended* kept) {
  const KnownAnswer known{kept ? *kept : ops::Attended()};
  Around around{ring, rule};
  around.rule.sinks_N = at::Tensor();
  const auto out = RingAttention::apply(q_tNH, k_tKH, v_tKV, maybe(rule.sinks_N), around, known);
  if (kept) *kept = {out[0], out[1]};
  return out[0];
}

}  // namespace apus
