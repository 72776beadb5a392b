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
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Triple forward(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& label, double temperature,
               bool need_entropy, int64_t chunk) {
  const LabelledTokens tokens(hidden, label);
  const at::TensorOptions wide = hidden.options().dtype(wide_type(hidden));
  at::Tensor logprob = at::empty({tokens.count()}, wide), lse = at::empty({tokens.count()}, wide), entropy;
  if (need_entropy) entropy = at::empty({tokens.count()}, wide);
  tokens.for_chunks(head.size(0), chunk, /*head_gradient=*/false, [&](int64_t begin, int64_t n) {
    const at::Tensor logits = chunk_logits(tokens, head, begin, n).div_(temperature);
    const at::Tensor sum = at::logsumexp(logits, -1);
    logprob.narrow(0, begin, n).copy_(logits.gather(1, tokens.label.narrow(0, begin, n).unsqueeze(1)).squeeze(1) - sum);
    lse.narrow(0, begin, n).copy_(sum);
    if (!need_entropy) return;
    const at::Tensor p = at::exp(logits - sum.unsqueeze(1));
    entropy.narrow(0, begin, n).copy_(sum - p.mul_(logits).sum(-1));
  });
  return {tokens.spread(logprob), need_entropy ? tokens.spread(entropy) : at::Tensor(), tokens.spread(lse)};
}

// d logprob / d logit_j = [j = label] - p_j,  d entropy / d logit_j = -p_j (log p_j + entropy), both over the
// temperature.
Pair backward(const OptionalTensor& grad_logprob, const OptionalTensor& grad_entropy, const at::Tensor& hidden,
              const at::Tensor& head, const at::Tensor& label, const at::Tensor& lse, const OptionalTensor& entropy,
              double temperature, bool need_hidden, bool need_head, int64_t chunk) {
  const LabelledTokens tokens(hidden, label);
  const auto pick = [&](const OptionalTensor& x) {
    return x.has_value() ? tokens.pick(*x).unsqueeze(1) : at::Tensor();
  };
  const at::Tensor lse_n1 = pick(lse), entropy_n1 = pick(entropy), into_logprob = pick(grad_logprob),
                   into_entropy = pick(grad_entropy);
  HeadGradients gradients(tokens, head, need_hidden, need_head);
  tokens.for_chunks(head.size(0), chunk, need_head, [&](int64_t begin, int64_t n) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, n); };
    at::Tensor d = chunk_logits(tokens, head, begin, n).div_(temperature).sub_(part(lse_n1));  // log p
    if (into_entropy.defined()) {
      const at::Tensor p = at::exp(d);
      d.add_(part(entropy_n1)).mul_(part(into_entropy));
      if (into_logprob.defined()) d.add_(part(into_logprob));
      d.mul_(p).neg_();
    } else {
      d.exp_().mul_(part(into_logprob)).neg_();
    }
    if (into_logprob.defined()) d.scatter_add_(1, part(tokens.label).unsqueeze(1), part(into_logprob).contiguous());
    gradients.add(begin, d.div_(temperature));
  });
  return {gradients.hidden(), gradients.head()};
}

Triple forward_shape(const at::Tensor& hidden, const at::Tensor&, const at::Tensor& label, double, bool need_entropy,
                     int64_t) {
  const auto per_token = [&] { return at::empty(label.sizes(), hidden.options().dtype(wide_type(hidden))); };
  return {per_token(), need_entropy ? per_token() : at::Tensor(), per_token()};
}
Pair backward_shape(const OptionalTensor&, const OptionalTensor&, const at::Tensor& hidden, const at::Tensor& head,
                    const at::Tensor&, const at::Tensor&, const OptionalTensor&, double, bool need_hidden,
                    bool need_head, int64_t) {
  return {need_hidden ? at::empty(hidden.sizes(), hidden.options()) : at::Tensor(),
          need_head ? at::empty(head.sizes(), head.options()) : at::Tensor()};
}

const auto& head_logprob_op() {
  static const auto op = handle<decltype(forward)>("apus::head_logprob");
  return op;
}

struct HeadLogprobNode : torch::autograd::Function<HeadLogprobNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                                                const at::Tensor& head, const at::Tensor& label, double temperature,
                                                bool need_entropy, int64_t chunk) {
    const BelowAutograd guard;
    ctx->set_materialize_grads(false);
    auto [logprob, entropy, lse] = head_logprob_op().call(hidden, head, label, temperature, need_entropy, chunk);
    ctx->save_for_backward({hidden, head, label, lse, entropy});
    ctx->mark_non_differentiable({lse});
    ctx->saved_data["temperature"] = temperature;
    ctx->saved_data["chunk"] = chunk;
    torch::autograd::variable_list out{logprob, lse};
    if (need_entropy) out.push_back(entropy);
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::head_logprob_backward");
    const BelowAutograd guard;
    const at::Tensor grad_entropy = grad.size() > 2 ? grad[2] : at::Tensor();
    if (!grad[0].defined() && !grad_entropy.defined()) return {{}, {}, {}, {}, {}, {}};
    const auto x = ctx->get_saved_variables();
    auto [d_hidden, d_head] = op.call(maybe(grad[0]), maybe(grad_entropy), x[0], x[1], x[2], x[3], maybe(x[4]),
                                      ctx->saved_data["temperature"].toDouble(), ctx->needs_input_grad(0),
                                      ctx->needs_input_grad(1), ctx->saved_data["chunk"].toInt());
    return {d_hidden, d_head, {}, {}, {}, {}};
  }
};

Triple autograd(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& label, double temperature,
                bool need_entropy, int64_t chunk) {
  if (any_requires_grad(hidden, head)) {
    const auto out = HeadLogprobNode::apply(hidden, head, label, temperature, need_entropy, chunk);
    return {out[0], need_entropy ? out[2] : at::Tensor(), out[1]};
  }
  const BelowAutograd guard;
  return head_logprob_op().call(hidden, head, label, temperature, need_entropy, chunk);
}

}  // namespace

HeadLogprob head_logprob(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const at::Tensor& label_T,
                         double temperature, bool entropy) {
  auto [logprob, entropies, lse] =
      head_logprob_op().call(hidden_TD, head_VD, label_T, temperature, entropy, /*chunk=*/0);
  return {logprob, entropies};
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> logprob f32 [T], entropy f32 [T] (undefined unless asked), lse f32 [T] of the logits over temperature (0 where
  // ignored). chunk as for head_loss.
  m.def(
      "head_logprob(Tensor hidden, Tensor head, Tensor label, float temperature, bool entropy, int chunk) -> "
      "(Tensor, Tensor, Tensor)");
  // -> d_hidden, d_head. entropy is the forward's, needed with grad_entropy.
  m.def(
      "head_logprob_backward(Tensor? grad_logprob, Tensor? grad_entropy, Tensor hidden, Tensor head, Tensor label, "
      "Tensor lse, "
      "Tensor? entropy, float temperature, bool need_hidden, bool need_head, int chunk) -> (Tensor, Tensor)");
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
