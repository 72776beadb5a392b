// SPDX-License-Identifier: Apache-2.0
#include "algos/policy/teacher_say.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/where.h>

namespace apus {

at::Tensor reweighted_advantage(const at::Tensor& advantage_N, const at::Tensor& gap_N, double lambda,
                                const TeacherSayOptions& o) {
  const double range = o.rlsd_reweight_clip_range;
  const at::Tensor share_N = (at::sign(advantage_N) * gap_N.detach()).exp().clamp(1 - range, 1 + range);
  at::Tensor factor_N = share_N * lambda + (1 - lambda);
  if (o.rlsd_negative_only) factor_N = at::where(advantage_N.lt(0), factor_N, at::ones_like(factor_N));
  return advantage_N * factor_N;
}

at::Tensor gated_distance(const at::Tensor& logprob_N, const at::Tensor& teacher_N, double gate_beta) {
  const at::Tensor gap_N = teacher_N.detach() - logprob_N;
  return at::sigmoid(gap_N.detach() * gate_beta) * gap_N;
}

}  // namespace apus
