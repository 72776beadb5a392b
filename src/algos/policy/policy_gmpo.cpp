// SPDX-License-Identifier: Apache-2.0
// GMPO: the geometric mean of a sequence's ratios, each clipped before, so that one outlier cannot carry it.
#include <ATen/ops/clamp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sign.h>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor gmpo_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor log_ratio_N = t.log_ratio(), sign_N = at::sign(t.advantage_N);
  const at::Tensor bounded_N =
      sign_N * at::minimum(sign_N * log_ratio_N, sign_N * at::clamp(log_ratio_N, -o.epsilon, o.epsilon_high));
  return -t.spread(t.means(bounded_N).exp()) * t.advantage_N;
}

const RegisterPolicyLoss gmpo_policy("gmpo", {gmpo_loss, Normaliser::Sequence});

}  // namespace
}  // namespace apus
