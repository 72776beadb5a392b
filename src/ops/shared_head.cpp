// SPDX-License-Identifier: Apache-2.0
// Shapes: n labelled tokens of a chunk, v this rank's words, V all of them, R ranks.
#include "ops/shared_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "base/error.h"
#include "ops/head_chunks.h"
#include "ops/op.h"

namespace apus::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Which of the chunk's labels are words of this rank, and its row of each (0 where it has none).
struct OwnLabels {
  OwnLabels(const at::Tensor& label_n, const WordShare& share, int64_t rows)
      : mine_n((label_n >= share.first).logical_and(label_n < share.first + rows)),
        row_n1(at::where(mine_n, label_n - share.first, at::scalar_tensor(0, label_n.options())).unsqueeze(1)) {}
  at::Tensor mine_n, row_n1;
};

// What the ranks know together of a chunk's logits.
struct Together {
  at::Tensor lse_n, picked_n, correct_n, mean_n;
  at::Tensor expected_n;  // the mean logit by probability, where it is asked for
};

// Each rank tells its largest logit, the sum of exp(logit - largest), the word of the largest, the logit of the label
// and the sum of its logits, bare and times exp(logit - largest); whoever comes first has the word where largest ones
// are alike, as in one process.
Together told(const at::Tensor& logits_nv, const at::Tensor& label_n, const WordShare& share, bool expected) {
  const OwnLabels own(label_n, share, logits_nv.size(1));
  const at::Tensor never = at::scalar_tensor(kNever, logits_nv.options());
  const auto [largest, best] = logits_nv.max(-1);
  const at::Tensor picked = at::where(own.mine_n, logits_nv.gather(1, own.row_n1).squeeze(1), never);
  at::Tensor weight_nv = at::exp(logits_nv - largest.unsqueeze(1));
  std::vector<at::Tensor> told = {largest, weight_nv.sum(-1), (best + share.first).to(logits_nv.scalar_type()), picked,
                                  logits_nv.sum(-1)};
  if (expected) told.push_back(weight_nv.mul_(logits_nv).sum(-1));
  const at::Tensor mine = at::stack(told);
  const int64_t ranks = share.ranks->size();
  at::Tensor all = at::empty({ranks * mine.size(0), mine.size(1)}, mine.options());
  share.ranks->all_gather(all, mine.contiguous())->wait();
  all = all.view({ranks, mine.size(0), mine.size(1)});
  const auto of = [&](int64_t what) { return all.select(1, what); };  // [R, n]
  const auto [most_n, owner_n] = of(0).max(0);
  const at::Tensor scale_Rn = at::exp(of(0) - most_n), sum_n = (of(1) * scale_Rn).sum(0);
  const at::Tensor word_n = of(2).gather(0, owner_n.unsqueeze(0)).squeeze(0);
  return {most_n + sum_n.log(), std::get<0>(of(3).max(0)), word_n == label_n.to(word_n.scalar_type()),
          of(4).sum(0) / static_cast<double>(share.words), expected ? (of(5) * scale_Rn).sum(0) / sum_n : at::Tensor()};
}

struct HowShared : torch::CustomClassHolder {
  HowShared(const WordShare& share, double temperature, double softcap, bool entropy)
      : share(share), temperature(temperature), softcap(softcap), entropy(entropy) {}
  const WordShare share;
  const double temperature, softcap;
  const bool entropy;
};
using How = c10::intrusive_ptr<HowShared>;

// -> log p of the labels; by how much the mean log p of all words is below 0, which smoothing adds; whether a label is
// the likeliest word; the entropy, where it is asked for. The backward pass makes the logits again.
struct SharedHead : torch::autograd::Function<SharedHead> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& head,
                               const OptionalTensor& low_hidden, const OptionalTensor& low_head,
                               const at::Tensor& label, const How& how) {
    const LabelledTokens tokens(hidden, low_hidden, label);
    HeadProducts products(tokens, head, low_head, {}, how->softcap);
    const at::TensorOptions wide = hidden.detach().options().dtype(wide_type(hidden));
    at::Tensor logprob = at::empty({tokens.count()}, wide), even = at::empty({tokens.count()}, wide),
               lse = at::empty({tokens.count()}, wide), correct = at::empty({tokens.count()}, wide.dtype(at::kBool)),
               entropy;
    if (how->entropy) entropy = at::empty({tokens.count()}, wide);
    tokens.for_chunks(head.size(0), 0, /*head_gradient=*/false, [&](int64_t begin, int64_t n) {
      const at::Tensor logits = products.logits(begin, n).div_(how->temperature);
      const Together all = told(logits, tokens.label.narrow(0, begin, n), how->share, how->entropy);
      logprob.narrow(0, begin, n).copy_(all.picked_n - all.lse_n), lse.narrow(0, begin, n).copy_(all.lse_n);
      even.narrow(0, begin, n).copy_(all.lse_n - all.mean_n), correct.narrow(0, begin, n).copy_(all.correct_n);
      if (how->entropy) entropy.narrow(0, begin, n).copy_(all.lse_n - all.expected_n);
    });
    if (how->entropy) entropy = tokens.spread(entropy);
    ctx->save_for_backward(
        {hidden, head, or_undefined(low_hidden), or_undefined(low_head), label, tokens.spread(lse), entropy});
    ctx->saved_data["how"] = c10::IValue::make_capsule(how);
    const at::Tensor right = tokens.spread(correct);
    ctx->mark_non_differentiable({right});
    variable_list out{tokens.spread(logprob), tokens.spread(even), right};
    if (how->entropy) out.push_back(entropy);
    return out;
  }

  // d log p / d logit_j = [j = label] - p_j,  d even / d logit_j = p_j - 1 / V,
  // d entropy / d logit_j = -p_j (log p_j + entropy), all over the temperature.
  static variable_list backward(AutogradContext* ctx, variable_list grad) {
    const auto x = ctx->get_saved_variables();
    const auto how = c10::static_intrusive_pointer_cast<HowShared>(ctx->saved_data["how"].toCapsule());
    const at::Tensor into =
        at::stack(how->entropy ? variable_list{grad[0], grad[1], grad[3]} : variable_list{grad[0], grad[1]});
    how->share.ranks->all_reduce(into)->wait();
    const LabelledTokens tokens(x[0], maybe(x[2]), x[4]);
    const auto picked = [&](const at::Tensor& of_T) { return tokens.pick(of_T).unsqueeze(1); };
    const at::Tensor lse_n1 = picked(x[5]), logprob_n1 = picked(into[0]), even_n1 = picked(into[1]);
    const at::Tensor entropy_n1 = how->entropy ? picked(x[6]) : at::Tensor(),
                     into_entropy_n1 = how->entropy ? picked(into[2]) : at::Tensor();
    const HeadNeeds need{ctx->needs_input_grad(0), ctx->needs_input_grad(1), x[2].defined() && ctx->needs_input_grad(2),
                         x[3].defined() && ctx->needs_input_grad(3)};
    HeadProducts products(tokens, x[1], maybe(x[3]), need, how->softcap);
    tokens.for_chunks(x[1].size(0), 0, products.head_gradient(), [&](int64_t begin, int64_t n) {
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, begin, n); };
      at::Tensor log_p = products.logits(begin, n).div_(how->temperature).sub_(part(lse_n1));
      const at::Tensor into_p = part(even_n1) - part(logprob_n1);
      at::Tensor d = how->entropy ? at::exp(log_p).mul_(into_p - part(into_entropy_n1) * (log_p + part(entropy_n1)))
                                  : log_p.exp_().mul_(into_p);
      d.sub_(part(even_n1) / static_cast<double>(how->share.words));
      const OwnLabels own(part(tokens.label), how->share, x[1].size(0));
      d.scatter_add_(1, own.row_n1, part(logprob_n1) * own.mine_n.unsqueeze(1).to(d.scalar_type()));
      products.add(begin, d.div_(how->temperature));
    });
    return {products.d_rows(0), products.d_weight(0), products.d_rows(1), products.d_weight(1), {}, {}};
  }
};

variable_list asked(const HeadFactors& f, const WordShare& share, const at::Tensor& label_T, double temperature,
                    bool entropy) {
  return SharedHead::apply(f.hidden_TD, f.weight_VD, maybe(f.low_TR), maybe(f.low_VR), label_T,
                           c10::make_intrusive<HowShared>(share, temperature, f.softcap, entropy));
}

}  // namespace

HeadLoss shared_head_loss(const HeadFactors& f, const WordShare& share, const at::Tensor& label_T,
                          const at::Tensor& weight_T, const HeadLossOptions& o) {
  const variable_list out = asked(f, share, label_T, 1, false);
  const at::Tensor nll_T = -out[0];
  at::Tensor loss_T = o.label_smoothing > 0 ? nll_T * (1 - o.label_smoothing) + out[1] * o.label_smoothing : nll_T;
  if (o.dft) loss_T = loss_T * at::exp(-nll_T.detach());
  if (weight_T.defined()) loss_T = loss_T * weight_T;
  return {at::where(label_T >= 0, loss_T, at::zeros_like(loss_T)).sum(), nll_T.detach(), out[2]};
}

HeadLogprob shared_head_logprob(const HeadFactors& f, const WordShare& share, const at::Tensor& label_T,
                                double temperature, bool entropy) {
  const variable_list out = asked(f, share, label_T, temperature, entropy);
  return {out[0], entropy ? out[3] : at::Tensor()};
}

}  // namespace apus::ops
