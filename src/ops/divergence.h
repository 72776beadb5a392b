// SPDX-License-Identifier: Apache-2.0
// How far the probabilities of a student are from those of a teacher, over the whole vocabulary or over the teacher's
// likeliest tokens. Some tokens at a time: [T, V] never exists, of neither.
#pragma once

#include <optional>

#include "ops/ops.h"
#include "ops/word_share.h"

namespace apus::ops {

// p of the student and q of the teacher, of logits divided by `temperature`. beta 0: KL(q | p). beta 1: KL(p | q).
// Between: beta KL(q | m) + (1 - beta) KL(p | m) with m = (1 - beta) p + beta q (generalised Jensen and Shannon).
struct DivergenceRule {
  double beta = 0.5, temperature = 1;
  int64_t top_k = 0;  // both renormalised over the teacher's k likeliest tokens; 0: over all
  double factor = 1;  // on the sum of head_divergence and its gradient
};

struct RowDivergence {
  at::Tensor value_n;      // of each row
  at::Tensor gradient_nV;  // of value_n in the student's logits
};
// Of logits [n, V] in f32 or f64, not divided yet.
RowDivergence divergence(const at::Tensor& student_nV, const at::Tensor& teacher_nV, const DivergenceRule& rule);

struct HeadDivergence {
  at::Tensor sum;      // f32 scalar, differentiable in the student's factors
  at::Tensor value_n;  // of each token with a label, in their order; detached
};
// Of the tokens with a label >= 0. The teacher's tokens may be others around them: another prompt. The i-th token with
// a label here and there are compared. Where one vocabulary is larger, what both know is compared.
// `share`, `teacher_share`: where ranks share out the words of a head, its weights are this rank's rows. They bring the
// logits of a few tokens at a time together; the results are the same on all ranks, and gradients those of the sum of
// all ranks' results, as collectives' are (dist/collective.h).
HeadDivergence head_divergence(const HeadFactors& student, const at::Tensor& label_T, const HeadFactors& teacher,
                               const at::Tensor& teacher_label_T, const DivergenceRule& rule,
                               const std::optional<WordShare>& share = {},
                               const std::optional<WordShare>& teacher_share = {});

// The same of a teacher of whom only the likeliest tokens of each place are known, best first: ids, int64 [n, k], and
// logits up to a constant of each place, [n, k]. rule.top_k is not asked.
HeadDivergence head_divergence_of_likely(const HeadFactors& student, const at::Tensor& label_T, const at::Tensor& id_nk,
                                         const at::Tensor& logit_nk, const DivergenceRule& rule,
                                         const std::optional<WordShare>& share = {});

// The entropy over the `top` likeliest tokens, renormalised, at each token: f32 [T], detached, 0 without a label.
at::Tensor head_top_entropy(const HeadFactors& factors, const at::Tensor& label_T, int64_t top);

}  // namespace apus::ops
