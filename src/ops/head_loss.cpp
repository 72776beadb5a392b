// SPDX-License-Identifier: Apache-2.0
// Output head and cross-entropy in one. The gradients are computed in the forward pass, where a chunk's logits are at
// hand, for an incoming gradient of 1; the backward pass scales them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "base/error.h"
#include "ops/head_chunks.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// From exp(logit - largest), whose sums over the vocabulary are `sum`, to d loss / d logit, in place:
// factor * (softmax - (1 - smoothing) onehot - smoothing / V).
at::Tensor logit_gradient(at::Tensor power_nV, const at::Tensor& sum_n, const at::Tensor& label_n,
                          const at::Tensor& factor_n, double smoothing) {
  const at::Tensor factor = factor_n.unsqueeze(1);
  power_nV.mul_(factor / sum_n.unsqueeze(1));
  if (smoothing > 0) power_nV.sub_(factor * (smoothing / static_cast<double>(power_nV.size(1))));
  return power_nV.scatter_add_(1, label_n.unsqueeze(1), factor * (smoothing - 1));
}

Results forward(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
                const OptionalTensor& low_head, const at::Tensor& label, const OptionalTensor& weight, double smoothing,
                bool dft, HeadNeeds need, int64_t chunk, double softcap) {
  const LabelledTokens tokens(hidden, low_hidden, label);
  const at::TensorOptions wide = hidden.options().dtype(wide_type(hidden));
  const at::Tensor token_weight =
      weight.has_value() ? tokens.pick(weight->to(wide.dtype())) : at::ones({tokens.count()}, wide);
  at::Tensor loss_sum = at::zeros({}, wide), nll = at::empty({tokens.count()}, wide);
  at::Tensor correct = at::empty({tokens.count()}, label.options().dtype(at::kBool));
  HeadProducts products(tokens, head, low_head, need, softcap);
  tokens.for_chunks(head.size(0), chunk, products.head_gradient(), [&](int64_t begin, int64_t n) {
    const at::Tensor logits = products.logits(begin, n), y = tokens.label.narrow(0, begin, n);
    const auto [largest, best] = logits.max(-1);
    const at::Tensor picked = logits.gather(1, y.unsqueeze(1)).squeeze(1);
    const at::Tensor mean = smoothing > 0 ? logits.mean(-1) : at::Tensor();
    const at::Tensor power = logits.sub_(largest.unsqueeze(1)).exp_(), sum = power.sum(-1), lse = largest + sum.log();
    const at::Tensor chunk_nll = lse - picked;
    nll.narrow(0, begin, n).copy_(chunk_nll);
    correct.narrow(0, begin, n).copy_(best == y);
    at::Tensor factor = token_weight.narrow(0, begin, n);
    if (dft) factor = factor * at::exp(-chunk_nll);
    const at::Tensor loss = smoothing > 0 ? chunk_nll * (1 - smoothing) + (lse - mean) * smoothing : chunk_nll;
    loss_sum.add_((loss * factor).sum());
    if (products.needed()) products.add(begin, logit_gradient(power, sum, y, factor, smoothing));
  });
  return {loss_sum,           tokens.spread(nll),  tokens.spread(correct), products.d_rows(0), products.d_weight(0),
          products.d_rows(1), products.d_weight(1)};
}

Results shape(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
              const OptionalTensor& low_head, const at::Tensor& label, const OptionalTensor&, double, bool,
              HeadNeeds need, int64_t, double) {
  const at::TensorOptions wide = hidden.options().dtype(wide_type(hidden));
  const auto like = [&](size_t i, const OptionalTensor& t) {
    return need[i] && t.has_value() ? at::empty(t->sizes(), t->options()) : at::Tensor();
  };
  return {at::empty({}, wide),
          at::empty(label.sizes(), wide),
          at::empty(label.sizes(), wide.dtype(at::kBool)),
          like(0, hidden),
          like(1, head),
          like(2, low_hidden),
          like(3, low_head)};
}

const auto& head_loss_op() {
  static const auto op = handle<decltype(forward)>("apus::head_loss");
  return op;
}

struct HeadLossNode : torch::autograd::Function<HeadLossNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                                                const at::Tensor& head, const OptionalTensor& low_hidden,
                                                const OptionalTensor& low_head, const at::Tensor& label,
                                                const OptionalTensor& weight, double smoothing, bool dft, int64_t chunk,
                                                double softcap) {
    const BelowAutograd guard;
    const HeadNeeds need{hidden.requires_grad(), head.requires_grad(), requires_grad(low_hidden),
                         requires_grad(low_head)};
    auto [loss_sum, nll, correct, d_hidden, d_head, d_low_hidden, d_low_head] =
        head_loss_op().call(hidden, head, low_hidden, low_head, label, weight, smoothing, dft, need, chunk, softcap);
    ctx->mark_non_differentiable({nll, correct});
    ctx->saved_data["gradients"] = std::vector<at::Tensor>{d_hidden, d_head, d_low_hidden, d_low_head};
    return {loss_sum, nll, correct};
  }
  // The gradients are scaled in place and given away: that of the head is as large as the head.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    require(!ctx->saved_data.empty(), Fault::Bug, "head_loss: its gradient can be taken once only");
    torch::autograd::variable_list out(10);
    const auto gradients = ctx->saved_data.at("gradients").toTensorVector();
    ctx->saved_data.clear();
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) scale_gradient(out[i] = gradients[i], grad[0]);
    return out;
  }
};

Results autograd(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
                 const OptionalTensor& low_head, const at::Tensor& label, const OptionalTensor& weight,
                 double smoothing, bool dft, HeadNeeds need, int64_t chunk, double softcap) {
  if (any_requires_grad(hidden, head, low_hidden, low_head)) {
    const auto out =
        HeadLossNode::apply(hidden, head, low_hidden, low_head, label, weight, smoothing, dft, chunk, softcap);
    return {out[0], out[1], out[2], {}, {}, {}, {}};
  }
  const BelowAutograd guard;
  return head_loss_op().call(hidden, head, low_hidden, low_head, label, weight, smoothing, dft, need, chunk, softcap);
}

}  // namespace

HeadLoss head_loss(const HeadFactors& f, const at::Tensor& label_T, const at::Tensor& weight_T,
                   const HeadLossOptions& options) {
  const auto out =
      head_loss_op().call(f.hidden_TD, f.weight_VD, maybe(f.low_TR), maybe(f.low_VR), label_T, maybe(weight_T),
                          options.label_smoothing, options.dft, /*need=*/{}, /*chunk=*/0, f.softcap);
  return {std::get<0>(out), std::get<1>(out), std::get<2>(out)};
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // logits = hidden head' + low_hidden low_head' (both or none). -> loss_sum f32 [], nll f32 [T], correct bool [T],
  // and, when asked, the gradients of loss_sum in the four factors, in their types. weight f32 [T], absent: ones.
  // chunk: tokens at a time, 0: let the op choose. softcap: of the logits, 0: none.
  // Above autograd the gradients are never given: they flow through loss_sum.
  m.def(
      "head_loss(Tensor hidden, Tensor head, Tensor? low_hidden, Tensor? low_head, Tensor label, Tensor? weight, float "
      "label_smoothing, bool dft, bool[4] need, int chunk, float softcap) -> (Tensor, Tensor, Tensor, Tensor, "
      "Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("head_loss", apus::ops::forward); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("head_loss", apus::ops::shape); }
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("head_loss", apus::ops::autograd); }
