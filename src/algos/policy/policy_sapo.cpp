// SPDX-License-Identifier: Apache-2.0
// SAPO: instead of a clip, a gate that closes softly as the ratio leaves 1, faster for what is to become less likely.
#include <ATen/ops/full_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor sapo_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor ratio_N = policy_log_ratio(t, o.level).exp();
  const at::Tensor tau_N =
      at::where(t.advantage_N.gt(0), at::full_like(t.advantage_N, o.tau_pos), at::full_like(t.advantage_N, o.tau_neg));
  return -at::sigmoid(tau_N * (ratio_N - 1)) * (4 / tau_N) * t.advantage_N;
}

const RegisterPolicyLoss sapo_policy("sapo", {sapo_loss, Normaliser::Sequence});

}  // namespace
}  // namespace apus
