// SPDX-License-Identifier: Apache-2.0
// REAL: the answers of a group are told apart as right and wrong, by the mean log-ratio of their tokens:
// log(1 + sum over wrong e^(s / tau)) + log(1 + sum over right e^(-s / tau)). A group must be whole in a micro-batch.
#include <ATen/ops/index_add.h>
#include <ATen/ops/zeros.h>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor real_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const auto by_group = [&](const at::Tensor& x_S) {
    return at::index_add(at::zeros({t.groups}, x_S.options()), 0, t.group_S, x_S);
  };
  const at::Tensor score_S = t.means(t.log_ratio()) / o.real_tau;
  const at::Tensor sign_S = t.means(t.advantage_N);  // one advantage for all tokens of a sequence
  const at::Tensor right_S = sign_S.gt(0).to(score_S.scalar_type()), wrong_S = sign_S.lt(0).to(score_S.scalar_type());
  const at::Tensor right_G = by_group(right_S), wrong_G = by_group(wrong_S);
  const at::Tensor loss_G = by_group(score_S.exp() * wrong_S).log1p() + by_group((-score_S).exp() * right_S).log1p();
  const at::Tensor both_G = right_G.gt(0).logical_and(wrong_G.gt(0)).to(score_S.scalar_type());
  // The group's loss in equal shares on its tokens.
  const at::Tensor share_G = loss_G * both_G / by_group(t.lengths()).clamp_min(1);
  return t.spread(share_G.index_select(0, t.group_S));
}

const RegisterPolicyLoss real_policy("real", {real_loss, Normaliser::Groups});

}  // namespace
}  // namespace apus
