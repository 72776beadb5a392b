// SPDX-License-Identifier: Apache-2.0
// CISPO: the ratio is a bounded weight without a gradient, so no token is dropped. epsilon_high is the bound itself.
#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor cispo_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor weight_N = policy_log_ratio(t, o.level).detach().exp().clamp_max(o.epsilon_high);
  return -weight_N * t.advantage_N * t.logprob_N;
}

const RegisterPolicyLoss cispo_policy("cispo", {cispo_loss, Normaliser::Tokens});

}  // namespace
}  // namespace apus
