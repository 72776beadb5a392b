// SPDX-License-Identifier: Apache-2.0
// The few tokens whose log-probability goes most together with their advantage make entropy collapse. Clip-Cov drops
// them, KL-Cov holds them to the old policy. They are the highest of the whole update (token_picks.h).
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

struct Surrogate {
  at::Tensor plain_N, clipped_N;
};

Surrogate surrogate(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor ratio_N = policy_log_ratio(t, o.level).exp();
  return {.plain_N = -ratio_N * t.advantage_N,
          .clipped_N = -at::clamp(ratio_N, 1 - o.epsilon, 1 + o.epsilon_high) * t.advantage_N};
}

at::Tensor covariance(const PolicyTokens& t, const PolicyOptions&, const UpdateMeans& means) {
  return (t.advantage_N.to(at::kDouble) - means.advantage) * (t.logprob_N.detach().to(at::kDouble) - means.logprob);
}

// Of those that are clipped already none is dropped.
at::Tensor open_covariance(const PolicyTokens& t, const PolicyOptions& o, const UpdateMeans& means) {
  const at::Tensor cov_N = covariance(t, o, means);
  const auto [plain_N, clipped_N] = surrogate(t, o);
  const at::Tensor open_N = cov_N.gt(o.clip_cov_low)
                                .logical_and(cov_N.lt(o.clip_cov_high))
                                .logical_and(clipped_N.detach().le(plain_N.detach()));
  return cov_N.masked_fill(open_N.logical_not(), -INFINITY);
}

at::Tensor clip_cov_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const auto [plain_N, clipped_N] = surrogate(t, o);
  return at::maximum(plain_N, clipped_N) * t.picked_N.logical_not();
}

at::Tensor kl_cov_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor plain_N = surrogate(t, o).plain_N;
  return at::where(t.picked_N, plain_N + o.kl_cov_coef * policy_log_ratio(t, o.level).abs(), plain_N);
}

const RegisterPolicyLoss clip_cov_policy("clip_cov", {clip_cov_loss, Normaliser::Tokens, open_covariance});
const RegisterPolicyLoss kl_cov_policy("kl_cov", {kl_cov_loss, Normaliser::Tokens, covariance});

}  // namespace
}  // namespace apus
