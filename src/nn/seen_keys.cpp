// SPDX-License-Identifier: Apache-2.0
#include "nn/seen_keys.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "nn/training_step.h"
#include "ops/ops.h"

namespace apus {

at::Tensor over_seen(const at::Tensor& q_TNH, const at::Tensor& k_UNH, const at::Tensor& v_UNV,
                     const at::Tensor& hidden_TU, const ops::AttentionRule& rule) {
  const auto wide = q_TNH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor score_NTU = at::matmul(q_TNH.transpose(0, 1), k_UNH.permute({1, 2, 0})).to(wide) * rule.scale;
  at::Tensor share_NTU = score_NTU.masked_fill(hidden_TU, -std::numeric_limits<double>::infinity());
  const int64_t heads = score_NTU.size(0), tokens = score_NTU.size(1), keys = score_NTU.size(2);
  if (rule.sinks_N.defined())
    share_NTU = at::cat({share_NTU, rule.sinks_N.to(wide).view({heads, 1, 1}).expand({heads, tokens, 1})}, 2);
  share_NTU = at::softmax(share_NTU, -1).narrow(2, 0, keys);
  return at::matmul(share_NTU.to(v_UNV.scalar_type()), v_UNV.transpose(0, 1)).transpose(0, 1);
}

at::Tensor hidden_but_best(const at::Tensor& q_TnD, const at::Tensor& weight_Tn, const at::Tensor& k_KD,
                           const at::Tensor& later_TK, int64_t chosen) {
  const at::NoGradGuard choosing;
  const auto wide = q_TnD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor met_TnK = at::matmul(q_TnD.to(wide), k_KD.to(wide).t()).relu();
  const at::Tensor rated_TK = at::matmul(weight_Tn.to(wide).unsqueeze(1), met_TnK).squeeze(1);
  const at::Tensor best = std::get<1>(rated_TK.masked_fill(later_TK, -std::numeric_limits<double>::infinity())
                                          .topk(std::min(chosen, k_KD.size(0)), -1));
  return at::ones_like(later_TK).scatter(1, best, 0).logical_or(later_TK);
}

void require_own_rows(const Step& s) {
  require(!training_of(s).groups && !training_of(s).key_K.defined() && !training_of(s).tokens, Fault::Usage,
          "attention that looks at chosen tokens is not for --tuner_type longlora, --share_prefix true and "
          "--sequence_parallel_size above 1");
}

}  // namespace apus
