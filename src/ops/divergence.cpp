// SPDX-License-Identifier: Apache-2.0
#include "ops/divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "ops/head_chunks.h"
#include "ops/op.h"

namespace apus::ops {
namespace {

// Of log-probabilities: the value, and its gradient in the student's logits before they were divided.
RowDivergence of_log_probs(const at::Tensor& p_nV, const at::Tensor& q_nV, double beta) {
  const at::Tensor student_nV = at::exp(p_nV);
  if (beta == 0) {
    const at::Tensor teacher_nV = at::exp(q_nV);
    return {(teacher_nV * (q_nV - p_nV)).sum(-1), student_nV - teacher_nV};
  }
  const auto spread = [&](const at::Tensor& lead_nV) {  // of sum p lead, where the gradient in p is lead + a constant
    const at::Tensor mean_n = (student_nV * lead_nV).sum(-1);
    return std::pair(mean_n, student_nV * (lead_nV - mean_n.unsqueeze(1)));
  };
  if (beta == 1) {
    auto [value_n, gradient_nV] = spread(p_nV - q_nV);
    return {value_n, gradient_nV};
  }
  const at::Tensor mixed_nV = at::logaddexp(p_nV + std::log(1 - beta), q_nV + std::log(beta));
  auto [own_n, gradient_nV] = spread(p_nV - mixed_nV);
  return {(at::exp(q_nV) * (q_nV - mixed_nV)).sum(-1) * beta + own_n * (1 - beta), gradient_nV * (1 - beta)};
}

at::Tensor tempered_log_probs(const at::Tensor& logits, const DivergenceRule& rule) {
  return at::log_softmax(logits / rule.temperature, -1);
}

// Over the tokens `index` of each row alone, of which the teacher's logits are given.
RowDivergence divergence_of_likely(const at::Tensor& student_nV, const at::Tensor& teacher_nk,
                                   const at::Tensor& index_nk, const DivergenceRule& rule) {
  const RowDivergence best = of_log_probs(tempered_log_probs(student_nV.gather(1, index_nk), rule),
                                          tempered_log_probs(teacher_nk, rule), rule.beta);
  return {best.value_n, at::zeros_like(student_nV).scatter_(1, index_nk, best.gradient_nV / rule.temperature)};
}

// The logits of all words, of which ranks have some each.
at::Tensor of_all_words(const at::Tensor& own_nv, const std::optional<WordShare>& share) {
  if (!share) return own_nv;
  const int ranks = share->ranks->size();
  std::vector<at::Tensor> parts;  // [v, n]: of as many words as each rank has
  for (int r = 0; r < ranks; ++r) parts.push_back(at::empty({share->words_of(r), own_nv.size(0)}, own_nv.options()));
  share->ranks->all_gather_uneven(parts, own_nv.t().contiguous())->wait();
  return at::cat(parts).t();
}

at::Tensor own_words(const at::Tensor& all_nV, const std::optional<WordShare>& share) {
  return share ? all_nV.narrow(1, share->first, share->words_of(share->ranks->rank())) : all_nV;
}

// What a teacher says of the student's tokens [begin, ...), whose logits are given.
using Lesson = std::function<RowDivergence(const at::Tensor& student_nV, int64_t begin)>;

struct HeadDivergenceNode : torch::autograd::Function<HeadDivergenceNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                                                const at::Tensor& head, const OptionalTensor& low_hidden,
                                                const OptionalTensor& low_head, const at::Tensor& label, double softcap,
                                                const Lesson& lesson, double factor,
                                                const std::optional<WordShare>& share) {
    const BelowAutograd guard;
    const HeadNeeds need{hidden.requires_grad(), head.requires_grad(), requires_grad(low_hidden),
                         requires_grad(low_head)};
    const LabelledTokens tokens(hidden, low_hidden, label);
    HeadProducts products(tokens, head, low_head, need, softcap);
    const at::TensorOptions wide = hidden.options().dtype(wide_type(hidden));
    at::Tensor sum = at::zeros({}, wide), value = at::empty({tokens.count()}, wide);
    // Twice the vocabulary: two models' logits are at hand.
    tokens.for_chunks(2 * head.size(0), 0, products.head_gradient(), [&](int64_t begin, int64_t n) {
      const RowDivergence rows = lesson(of_all_words(products.logits(begin, n), share), begin);
      value.narrow(0, begin, n).copy_(rows.value_n);
      sum.add_(rows.value_n.sum(), factor);
      if (!products.needed()) return;
      const at::Tensor own_nv = own_words(rows.gradient_nV, share);
      products.add(begin, factor == 1 ? own_nv : own_nv * factor);
    });
    ctx->mark_non_differentiable({value});
    if (share) ctx->saved_data["ranks"] = reinterpret_cast<int64_t>(share->ranks);
    ctx->saved_data["gradients"] =
        std::vector<at::Tensor>{products.d_rows(0), products.d_weight(0), products.d_rows(1), products.d_weight(1)};
    return {sum, value};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    require(!ctx->saved_data.empty(), Fault::Bug, "head_divergence: its gradient can be taken once only");
    torch::autograd::variable_list out(9);
    const auto gradients = ctx->saved_data.at("gradients").toTensorVector();
    const auto ranks = ctx->saved_data.find("ranks");
    const at::Tensor of_all = ranks == ctx->saved_data.end() ? grad[0] : grad[0].clone();
    if (ranks != ctx->saved_data.end()) reinterpret_cast<Comm*>(ranks->second.toInt())->all_reduce(of_all)->wait();
    ctx->saved_data.clear();
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) scale_gradient(out[i] = gradients[i], of_all);
    return out;
  }
};

}  // namespace

RowDivergence divergence(const at::Tensor& student_nV, const at::Tensor& teacher_nV, const DivergenceRule& rule) {
  if (rule.top_k <= 0 || rule.top_k >= teacher_nV.size(1)) {
    const RowDivergence all =
        of_log_probs(tempered_log_probs(student_nV, rule), tempered_log_probs(teacher_nV, rule), rule.beta);
    return {all.value_n, all.gradient_nV / rule.temperature};
  }
  const auto [teacher_nk, index_nk] = at::topk(teacher_nV, rule.top_k, -1);
  return divergence_of_likely(student_nV, teacher_nk, index_nk, rule);
}

namespace {
HeadDivergence compared(const HeadFactors& f, const at::Tensor& label_T, const Lesson& lesson, double factor,
                        const std::optional<WordShare>& share) {
  const auto out = HeadDivergenceNode::apply(f.hidden_TD, f.weight_VD, maybe(f.low_TR), maybe(f.low_VR), label_T,
                                             f.softcap, lesson, factor, share);
  return {out[0], out[1]};
}

// Over the first words, which both know; the gradient of further ones is 0.
RowDivergence of_common_words(const at::Tensor& student_nV, const at::Tensor& teacher_nV, const DivergenceRule& rule) {
  const int64_t words = student_nV.size(1), common = std::min(words, teacher_nV.size(1));
  RowDivergence out = divergence(student_nV.narrow(1, 0, common), teacher_nV.narrow(1, 0, common), rule);
  if (common < words) out.gradient_nV = at::constant_pad_nd(out.gradient_nV, {0, words - common});
  return out;
}
}  // namespace

HeadDivergence head_divergence(const HeadFactors& student, const at::Tensor& label_T, const HeadFactors& teacher,
                               const at::Tensor& teacher_label_T, const DivergenceRule& rule,
                               const std::optional<WordShare>& share, const std::optional<WordShare>& teacher_share) {
  const OptionalTensor low_TR = maybe(teacher.low_TR);
  const LabelledTokens tokens(teacher.hidden_TD, low_TR, teacher_label_T);
  const int64_t own = label_T.ge(0).sum().item<int64_t>();
  require(own == tokens.count(), Fault::Bug, "a student's ", own, " tokens are compared with a teacher's ",
          tokens.count());
  HeadProducts lessons(tokens, teacher.weight_VD, maybe(teacher.low_VR), {}, teacher.softcap);
  const Lesson lesson = [&](const at::Tensor& student_nV, int64_t begin) {
    return of_common_words(student_nV, of_all_words(lessons.logits(begin, student_nV.size(0)), teacher_share), rule);
  };
  return compared(student, label_T, lesson, rule.factor, share);
}

HeadDivergence head_divergence_of_likely(const HeadFactors& student, const at::Tensor& label_T, const at::Tensor& id_nk,
                                         const at::Tensor& logit_nk, const DivergenceRule& rule,
                                         const std::optional<WordShare>& share) {
  const Lesson lesson = [&](const at::Tensor& student_nV, int64_t begin) {
    const int64_t n = student_nV.size(0);
    return divergence_of_likely(student_nV, logit_nk.narrow(0, begin, n).to(student_nV.scalar_type()),
                                id_nk.narrow(0, begin, n), rule);
  };
  return compared(student, label_T, lesson, rule.factor, share);
}

at::Tensor head_top_entropy(const HeadFactors& f, const at::Tensor& label_T, int64_t top) {
  const at::NoGradGuard no_grad;
  const OptionalTensor low_TR = maybe(f.low_TR);
  const LabelledTokens tokens(f.hidden_TD, low_TR, label_T);
  HeadProducts products(tokens, f.weight_VD, maybe(f.low_VR), {}, f.softcap);
  at::Tensor entropy = at::empty({tokens.count()}, f.hidden_TD.options().dtype(wide_type(f.hidden_TD)));
  tokens.for_chunks(f.weight_VD.size(0), 0, /*head_gradient=*/false, [&](int64_t begin, int64_t n) {
    const at::Tensor logits = products.logits(begin, n);
    const at::Tensor best = std::get<0>(at::topk(logits, std::min(top, logits.size(1)), -1));
    const at::Tensor log_p = at::log_softmax(best, -1);
    entropy.narrow(0, begin, n).copy_(-(at::exp(log_p) * log_p).sum(-1));
  });
  return tokens.spread(entropy);
}

}  // namespace apus::ops
