// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: routing, and the experts' feed-forward. The reference sorts the token-expert pairs by expert on
// the host and multiplies once for every expert that has tokens; the backward pass recomputes the experts' activations.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "ops/expert_pairs.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Quad = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Pair route(const at::Tensor& logits, int64_t k, bool normalise) {
  auto [weight, expert] = at::topk(at::softmax(widen(logits), -1), k, -1);
  if (normalise) weight = weight / weight.sum(-1, /*keepdim=*/true);
  return {weight.to(logits.scalar_type()), expert};
}

at::Tensor route_backward(const at::Tensor& grad, const at::Tensor& logits, const at::Tensor& expert, bool normalise) {
  const at::Tensor p = at::softmax(widen(logits), -1);
  at::Tensor g = widen(grad);
  if (normalise) {
    const at::Tensor chosen = p.gather(1, expert), sum = chosen.sum(-1, /*keepdim=*/true);
    g = (g - (g * chosen).sum(-1, /*keepdim=*/true) / sum) / sum;
  }
  const at::Tensor dp = at::zeros(p.sizes(), p.options()).scatter_(1, expert, g);
  return (p * (dp - (p * dp).sum(-1, /*keepdim=*/true))).to(logits.scalar_type());
}

// The token-expert pairs of one expert: `pair` indexes the flattened [T, k] tensors, `token` the tokens.
struct Share {
  int64_t expert;
  at::Tensor token, pair;
};

std::vector<Share> shares(const at::Tensor& expert_Tk, int64_t experts) {
  const ExpertPairs all = pairs_by_expert(expert_Tk, experts);
  std::vector<Share> out;
  int64_t begin = 0;
  for (int64_t e = 0; e < experts; begin += all.count()[e++])
    if (const int64_t n = all.count()[e]; n > 0)
      out.push_back({e, all.token.narrow(0, begin, n), all.pair.narrow(0, begin, n)});
  return out;
}

// By the device's own linear layers, whose results for a row do not depend on how many others there are.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight) {
  static const auto linear =
      handle<at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&)>("apus::linear");
  return linear.call(x, weight, {});
}

// An expert's gate and up activations for its tokens, two slices of one product.
Pair gate_and_up(const at::Tensor& x, const at::Tensor& gate_up, int64_t expert) {
  const at::Tensor both = product(x, gate_up[expert]);
  const int64_t f = both.size(1) / 2;
  return {both.narrow(1, 0, f), both.narrow(1, f, f)};
}

at::Tensor ffn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert, const at::Tensor& gate_up,
               const at::Tensor& down) {
  const at::Tensor pair_weight = widen(weight).reshape({-1, 1});
  at::Tensor y = at::zeros(x.sizes(), x.options().dtype(wide_type(x)));
  for (const Share& s : shares(expert, gate_up.size(0))) {
    const auto [gate, up] = gate_and_up(x.index_select(0, s.token), gate_up, s.expert);
    const at::Tensor out = product(swiglu(gate, up), down[s.expert]);
    y.index_add_(0, s.token, widen(out) * pair_weight.index_select(0, s.pair));
  }
  return y.to(x.scalar_type());
}

Quad ffn_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert,
                  const at::Tensor& gate_up, const at::Tensor& down, std::array<bool, 4> need) {
  static const auto swiglu_backward =
      handle<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&)>("apus::swiglu_backward");
  const at::Tensor pair_weight = widen(weight).reshape({-1, 1});
  at::Tensor dx, dweight, dgate_up, ddown;
  if (need[0]) dx = at::zeros(x.sizes(), x.options().dtype(wide_type(x)));
  if (need[1]) dweight = at::zeros(pair_weight.sizes(), pair_weight.options());
  if (need[2]) dgate_up = at::zeros(gate_up.sizes(), gate_up.options());
  if (need[3]) ddown = at::zeros(down.sizes(), down.options());
  for (const Share& s : shares(expert, gate_up.size(0))) {
    const at::Tensor tokens = x.index_select(0, s.token), dy = grad.index_select(0, s.token);
    const at::Tensor w = pair_weight.index_select(0, s.pair);
    const auto [gate, up] = gate_and_up(tokens, gate_up, s.expert);
    const at::Tensor activated = need[1] || need[3] ? swiglu(gate, up) : at::Tensor();
    const at::Tensor d_activated = widen(matmul(dy, down[s.expert]));  // before the pair's weight
    if (need[1]) dweight.index_copy_(0, s.pair, (d_activated * widen(activated)).sum(-1, /*keepdim=*/true));
    if (need[3]) ddown[s.expert].copy_(matmul((widen(dy) * w).to(x.scalar_type()).t(), activated));
    if (!need[0] && !need[2]) continue;
    const auto [dgate, dup] = swiglu_backward.call((d_activated * w).to(x.scalar_type()), gate, up);
    const at::Tensor both = at::cat({dgate, dup}, 1);
    if (need[0]) dx.index_add_(0, s.token, widen(matmul(both, gate_up[s.expert])));
    if (need[2]) dgate_up[s.expert].copy_(matmul(both.t(), tokens));
  }
  return {need[0] ? dx.to(x.scalar_type()) : dx,
          need[1] ? dweight.view(weight.sizes()).to(weight.scalar_type()) : dweight, dgate_up, ddown};
}

at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

Pair route_shape(const at::Tensor& logits, int64_t k, bool) {
  return {at::empty({logits.size(0), k}, logits.options()),
          at::empty({logits.size(0), k}, logits.options().dtype(at::kLong))};
}
at::Tensor route_backward_shape(const at::Tensor&, const at::Tensor& logits, const at::Tensor&, bool) {
  return like(logits);
}
at::Tensor ffn_shape(const at::Tensor& x, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return like(x);
}
Quad ffn_backward_shape(const at::Tensor&, const at::Tensor& x, const at::Tensor& weight, const at::Tensor&,
                        const at::Tensor& gate_up, const at::Tensor& down, std::array<bool, 4> need) {
  const auto when = [&](int i, const at::Tensor& t) { return need[i] ? like(t) : at::Tensor(); };
  return {when(0, x), when(1, weight), when(2, gate_up), when(3, down)};
}

const auto& route_op() {
  static const auto op = handle<decltype(route)>("apus::route_topk");
  return op;
}
const auto& ffn_op() {
  static const auto op = handle<decltype(ffn)>("apus::moe_ffn");
  return op;
}

struct Route : torch::autograd::Function<Route> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits,
                                                int64_t k, bool normalise) {
    const BelowAutograd guard;
    auto [weight, expert] = route_op().call(logits, k, normalise);
    ctx->save_for_backward({logits, expert});
    ctx->mark_non_differentiable({expert});
    ctx->saved_data["normalise"] = normalise;
    return {weight, expert};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(route_backward)>("apus::route_topk_backward");
    const BelowAutograd guard;
    const auto saved = ctx->get_saved_variables();
    return {op.call(grad[0], saved[0], saved[1], ctx->saved_data["normalise"].toBool()), {}, {}};
  }
};

struct MoeFfn : torch::autograd::Function<MoeFfn> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& expert, const at::Tensor& gate_up, const at::Tensor& down) {
    const BelowAutograd guard;
    ctx->save_for_backward({x, weight, expert, gate_up, down});
    return ffn_op().call(x, weight, expert, gate_up, down);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ffn_backward)>("apus::moe_ffn_backward");
    const BelowAutograd guard;
    const auto s = ctx->get_saved_variables();
    const auto need = [&](size_t i) { return ctx->needs_input_grad(i); };
    auto [dx, dweight, dgate_up, ddown] =
        op.call(grad[0], s[0], s[1], s[2], s[3], s[4], {need(0), need(1), need(3), need(4)});
    return {dx, dweight, {}, dgate_up, ddown};
  }
};

Pair route_autograd(const at::Tensor& logits, int64_t k, bool normalise) {
  if (any_requires_grad(logits)) {
    const auto out = Route::apply(logits, k, normalise);
    return {out[0], out[1]};
  }
  const BelowAutograd guard;
  return route_op().call(logits, k, normalise);
}

at::Tensor ffn_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert,
                        const at::Tensor& gate_up, const at::Tensor& down) {
  if (any_requires_grad(x, weight, gate_up, down)) return MoeFfn::apply(x, weight, expert, gate_up, down);
  const BelowAutograd guard;
  return ffn_op().call(x, weight, expert, gate_up, down);
}

}  // namespace

Routing route_topk(const at::Tensor& router_logits_TE, int64_t k, bool normalise) {
  auto [weight, expert] = route_op().call(router_logits_TE, k, normalise);
  return {weight, expert};
}

at::Tensor moe_ffn(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const at::Tensor& expert_Tk,
                   const at::Tensor& gate_up, const at::Tensor& down) {
  return ffn_op().call(x_TD, weight_Tk, expert_Tk, gate_up, down);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> weight [T, k] in the logits' type, expert int64 [T, k], best first
  m.def("route_topk(Tensor logits, int k, bool normalise) -> (Tensor, Tensor)");
  m.def("route_topk_backward(Tensor grad, Tensor logits, Tensor expert, bool normalise) -> Tensor");
  m.def("moe_ffn(Tensor x, Tensor weight, Tensor expert, Tensor gate_up, Tensor down) -> Tensor");
  // -> dx, dweight, dgate_up, ddown, each only when asked
  m.def(
      "moe_ffn_backward(Tensor grad, Tensor x, Tensor weight, Tensor expert, Tensor gate_up, Tensor down, bool[4] "
      "need) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("route_topk", apus::ops::route);
  m.impl("route_topk_backward", apus::ops::route_backward);
  m.impl("moe_ffn", apus::ops::ffn);
  m.impl("moe_ffn_backward", apus::ops::ffn_backward);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("route_topk", apus::ops::route_shape);
  m.impl("route_topk_backward", apus::ops::route_backward_shape);
  m.impl("moe_ffn", apus::ops::ffn_shape);
  m.impl("moe_ffn_backward", apus::ops::ffn_backward_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) {
  m.impl("route_topk", apus::ops::route_autograd);
  m.impl("moe_ffn", apus::ops::ffn_autograd);
}
