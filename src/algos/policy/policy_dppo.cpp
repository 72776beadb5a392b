// SPDX-License-Identifier: Apache-2.0
// DPPO: no clip of ratios; a token is dropped when its probability itself has moved too far in the direction that its
// advantage rewards. Far is a difference of probabilities (tv), or the divergence of "this token or another" (kl).
#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

constexpr double kLargestRatio = 20;

at::Tensor dppo_weighed(const PolicyTokens& t, const at::Tensor& kept_N) {
  const at::Tensor ratio_N = t.log_ratio().detach().exp().clamp_max(kLargestRatio);
  return -t.advantage_N * ratio_N * t.logprob_N * kept_N.to(ratio_N.scalar_type());
}

// Dropped are those above `high` in favour of good tokens, and those above `low` against bad ones.
at::Tensor within_bounds(const PolicyTokens& t, const at::Tensor& moved_up_N, const at::Tensor& moved_down_N,
                         const PolicyOptions& o) {
  const at::Tensor too_high_N = t.advantage_N.gt(0).logical_and(moved_up_N.gt(o.epsilon_high));
  const at::Tensor too_low_N = t.advantage_N.le(0).logical_and(moved_down_N.gt(o.epsilon));
  return too_high_N.logical_or(too_low_N).logical_not();
}

at::Tensor dppo_tv_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor moved_N = t.logprob_N.detach().exp() - t.old_N.exp();
  return dppo_weighed(t, within_bounds(t, moved_N, -moved_N, o));
}

at::Tensor dppo_kl_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor p_N = t.logprob_N.detach().exp().clamp(1e-8, 1 - 1e-7), q_N = t.old_N.exp().clamp(1e-8, 1 - 1e-7);
  const at::Tensor divergence_N = q_N * (q_N / p_N).log() + (1 - q_N) * ((1 - q_N) / (1 - p_N)).log();
  const at::Tensor up_N = p_N.gt(q_N).to(p_N.scalar_type());
  return dppo_weighed(t, within_bounds(t, divergence_N * up_N, divergence_N * (1 - up_N), o));
}

const RegisterPolicyLoss tv_policy("dppo_tv", {dppo_tv_loss, Normaliser::Tokens});
const RegisterPolicyLoss kl_policy("dppo_kl", {dppo_kl_loss, Normaliser::Tokens});

}  // namespace
}  // namespace apus
