// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of labels, and entropies, straight from the hidden state. The backward pass recomputes the logits
// of a chunk; between the two only [T] numbers are kept.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/head_chunks.h"
#include "ops/logit_logprob.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Quad = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Triple forward(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
               const OptionalTensor& low_head, const at::Tensor& label, double temperature, bool need_entropy,
               int64_t chunk, double softcap) {
  const LabelledTokens tokens(hidden, low_hidden, label);
  HeadProducts products(tokens, head, low_head, {}, softcap);
  const at::TensorOptions wide = hidden.options().dtype(wide_type(hidden));
  at::Tensor logprob = at::empty({tokens.count()}, wide), lse = at::empty({tokens.count()}, wide), entropy;
  if (need_entropy) entropy = at::empty({tokens.count()}, wide);
  tokens.for_chunks(head.size(0), chunk, /*head_gradient=*/false, [&](int64_t begin, int64_t n) {
    at::Tensor logits = products.logits(begin, n);
    // As an engine has it of its logits.
    logprob.narrow(0, begin, n).copy_(logit_logprob(logits, tokens.label.narrow(0, begin, n), temperature));
    const at::Tensor sum = at::logsumexp(logits.div_(temperature), -1);
    lse.narrow(0, begin, n).copy_(sum);
    if (!need_entropy) return;
    const at::Tensor p = at::exp(logits - sum.unsqueeze(1));
    entropy.narrow(0, begin, n).copy_(sum - p.mul_(logits).sum(-1));
  });
  return {tokens.spread(logprob), need_entropy ? tokens.spread(entropy) : at::Tensor(), tokens.spread(lse)};
}

// d logprob / d logit_j = [j = label] - p_j,  d entropy / d logit_j = -p_j (log p_j + entropy),
// both over the temperature.
Quad backward(const OptionalTensor& grad_logprob, const OptionalTensor& grad_entropy, const at::Tensor& hidden,
              const at::Tensor& head, const OptionalTensor& low_hidden, const OptionalTensor& low_head,
              const at::Tensor& label, const at::Tensor& lse, const OptionalTensor& entropy, double temperature,
              HeadNeeds need, int64_t chunk, double softcap) {
  const LabelledTokens tokens(hidden, low_hidden, label);
  const auto pick = [&](const OptionalTensor& x) {
    return x.has_value() ? tokens.pick(*x).unsqueeze(1) : at::Tensor();
  };
  const at::Tensor lse_n1 = pick(lse), entropy_n1 = pick(entropy), into_logprob = pick(grad_logprob),
                   into_entropy = pick(grad_entropy);
  HeadProducts products(tokens, head, low_head, need, softcap);
  tokens.for_chunks(head.size(0), chunk, products.head_gradient(), [&](int64_t begin, int64_t n) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, n); };
    at::Tensor d = products.logits(begin, n).div_(temperature).sub_(part(lse_n1));  // log p
    if (into_entropy.defined()) {
      const at::Tensor p = at::exp(d);
      d.add_(part(entropy_n1)).mul_(part(into_entropy));
      if (into_logprob.defined()) d.add_(part(into_logprob));
      d.mul_(p).neg_();
    } else {
      d.exp_().mul_(part(into_logprob)).neg_();
    }
    if (into_logprob.defined()) d.scatter_add_(1, part(tokens.label).unsqueeze(1), part(into_logprob).contiguous());
    products.add(begin, d.div_(temperature));
  });
  return {products.d_rows(0), products.d_weight(0), products.d_rows(1), products.d_weight(1)};
}

Triple forward_shape(const at::Tensor& hidden, const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
                     const at::Tensor& label, double, bool need_entropy, int64_t, double) {
  const auto per_token = [&] { return at::empty(label.sizes(), hidden.options().dtype(wide_type(hidden))); };
  return {per_token(), need_entropy ? per_token() : at::Tensor(), per_token()};
}
Quad backward_shape(const OptionalTensor&, const OptionalTensor&, const at::Tensor& hidden, const at::Tensor& head,
                    const OptionalTensor& low_hidden, const OptionalTensor& low_head, const at::Tensor&,
                    const at::Tensor&, const OptionalTensor&, double, HeadNeeds need, int64_t, double) {
  const auto like = [&](size_t i, const OptionalTensor& t) {
    return need[i] && t.has_value() ? at::empty(t->sizes(), t->options()) : at::Tensor();
  };
  return {like(0, hidden), like(1, head), like(2, low_hidden), like(3, low_head)};
}

const auto& head_logprob_op() {
  static const auto op = handle<decltype(forward)>("apus::head_logprob");
  return op;
}

struct HeadLogprobNode : torch::autograd::Function<HeadLogprobNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                                                const at::Tensor& head, const OptionalTensor& low_hidden,
                                                const OptionalTensor& low_head, const at::Tensor& label,
                                                double temperature, bool need_entropy, int64_t chunk, double softcap) {
    const BelowAutograd guard;
    ctx->set_materialize_grads(false);
    auto [logprob, entropy, lse] =
        head_logprob_op().call(hidden, head, low_hidden, low_head, label, temperature, need_entropy, chunk, softcap);
    ctx->save_for_backward({hidden, head, or_undefined(low_hidden), or_undefined(low_head), label, lse, entropy});
    ctx->mark_non_differentiable({lse});
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["chunk"] = chunk;
    ctx->saved_data["softcap"] = softcap;
    torch::autograd::variable_list out{logprob, lse};
    if (need_entropy) out.push_back(entropy);
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::head_logprob_backward");
    const BelowAutograd guard;
    const at::Tensor grad_entropy = grad.size() > 2 ? grad[2] : at::Tensor();
    torch::autograd::variable_list out(9);
    if (!grad[0].defined() && !grad_entropy.defined()) return out;
    const auto x = ctx->get_saved_variables();
    const HeadNeeds need{x[0].requires_grad(), x[1].requires_grad(), requires_grad(x[2]), requires_grad(x[3])};
    std::tie(out[0], out[1], out[2], out[3]) =
        op.call(maybe(grad[0]), maybe(grad_entropy), x[0], x[1], maybe(x[2]), maybe(x[3]), x[4], x[5], maybe(x[6]),
                ctx->saved_data["temperature"].toDouble(), need, ctx->saved_data["chunk"].toInt(),
                ctx->saved_data["softcap"].toDouble());
    return out;
  }
};

Triple autograd(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
                const OptionalTensor& low_head, const at::Tensor& label, double temperature, bool need_entropy,
                int64_t chunk, double softcap) {
  if (any_requires_grad(hidden, head, low_hidden, low_head)) {
    const auto out =
        HeadLogprobNode::apply(hidden, head, low_hidden, low_head, label, temperature, need_entropy, chunk, softcap);
    return {out[0], need_entropy ? out[2] : at::Tensor(), out[1]};
  }
  const BelowAutograd guard;
  return head_logprob_op().call(hidden, head, low_hidden, low_head, label, temperature, need_entropy, chunk, softcap);
}

}  // namespace

HeadLogprob head_logprob(const HeadFactors& f, const at::Tensor& label_T, double temperature, bool entropy) {
  auto [logprob, entropies, lse] = head_logprob_op().call(f.hidden_TD, f.weight_VD, maybe(f.low_TR), maybe(f.low_VR),
                                                          label_T, temperature, entropy, /*chunk=*/0, f.softcap);
  return {logprob, entropies};
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> logprob f32 [T], entropy f32 [T] (undefined unless asked), lse f32 [T] of the logits over temperature (0 where
  // ignored). Factors and chunk as for head_loss.
  m.def(
      "head_logprob(Tensor hidden, Tensor head, Tensor? low_hidden, Tensor? low_head, Tensor label, float temperature, "
      "bool entropy, int chunk, float softcap) -> (Tensor, Tensor, Tensor)");
  // -> the gradients of the four factors. entropy is the forward's, needed with grad_entropy.
  m.def(
      "head_logprob_backward(Tensor? grad_logprob, Tensor? grad_entropy, Tensor hidden, Tensor head, Tensor? "
      "low_hidden, Tensor? "
      "low_head, Tensor label, Tensor lse, Tensor? entropy, float temperature, bool[4] need, int chunk, float "
      "softcap) -> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("head_logprob", apus::ops::forward);
  m.impl("head_logprob_backward", apus::ops::backward);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("head_logprob", apus::ops::forward_shape);
  m.impl("head_logprob_backward", apus::ops::backward_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("head_logprob", apus::ops::autograd); }
