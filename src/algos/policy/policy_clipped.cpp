// SPDX-License-Identifier: Apache-2.0
// The clipped surrogate of PPO, which GRPO, BNPO, Dr.GRPO and DAPO divide differently; at the level of sequences it is
// GSPO, and times the length LUSPO.
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor clipped_surrogate(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor ratio_N = policy_log_ratio(t, o.level).exp();
  const at::Tensor bounded_N = o.delta ? ratio_N.clamp_max(*o.delta) : ratio_N;
  return at::maximum(-bounded_N * t.advantage_N,
                     -at::clamp(ratio_N, 1 - o.epsilon, 1 + o.epsilon_high) * t.advantage_N);
}

at::Tensor luspo_loss(const PolicyTokens& t, const PolicyOptions& o) {
  PolicyOptions whole = o;
  whole.level = RatioLevel::Sequence;
  return clipped_surrogate(t, whole);
}

const RegisterPolicyLoss grpo_policy("grpo", {clipped_surrogate, Normaliser::Sequence});
const RegisterPolicyLoss bnpo_policy("bnpo", {clipped_surrogate, Normaliser::MicroBatch});
const RegisterPolicyLoss dr_grpo_policy("dr_grpo", {clipped_surrogate, Normaliser::Constant});
const RegisterPolicyLoss dapo_policy("dapo", {clipped_surrogate, Normaliser::Tokens});
const RegisterPolicyLoss luspo_policy("luspo", {luspo_loss, Normaliser::SequenceSums});

}  // namespace
}  // namespace apus
