// SPDX-License-Identifier: Apache-2.0
// The few tokens whose log-probability goes most together with their advantage make entropy collapse. Clip-Cov drops
// them, KL-Cov holds them to the old policy.
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

// Bool [N]: the `share` of the tokens, at least one, with the highest values that are finite.
at::Tensor highest_tokens(const at::Tensor& value_N, double share) {
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(value_N.numel())));
  const auto [best, index] = at::topk(value_N, std::min(count, value_N.numel()));
  return at::zeros_like(value_N).index_fill_(0, index, 1).gt(0).logical_and(value_N.isfinite());
}

at::Tensor covariance(const PolicyTokens& t) {
  const at::Tensor logprob_N = t.logprob_N.detach();
  return (t.advantage_N - t.advantage_N.mean()) * (logprob_N - logprob_N.mean());
}

at::Tensor clip_cov_loss(const PolicyTokens& t, const PolicyOptions& o) {
  if (t.old_N.numel() == 0) return t.logprob_N;
  const at::Tensor ratio_N = policy_log_ratio(t, o.level).exp();
  const at::Tensor plain_N = -ratio_N * t.advantage_N,
                   clipped_N = -at::clamp(ratio_N, 1 - o.epsilon, 1 + o.epsilon_high) * t.advantage_N;
  const at::Tensor cov_N = covariance(t);
  const at::Tensor open_N = cov_N.gt(o.clip_cov_low)
                                .logical_and(cov_N.lt(o.clip_cov_high))
                                .logical_and(clipped_N.detach().le(plain_N.detach()));
  const at::Tensor dropped_N = highest_tokens(cov_N.masked_fill(open_N.logical_not(), -INFINITY), o.cov_ratio);
  return at::maximum(plain_N, clipped_N) * dropped_N.logical_not();
}

at::Tensor kl_cov_loss(const PolicyTokens& t, const PolicyOptions& o) {
  if (t.old_N.numel() == 0) return t.logprob_N;
  const at::Tensor log_ratio_N = policy_log_ratio(t, o.level), plain_N = -log_ratio_N.exp() * t.advantage_N;
  return at::where(highest_tokens(covariance(t), o.cov_ratio), plain_N + o.kl_cov_coef * log_ratio_N.abs(), plain_N);
}

const RegisterPolicyLoss clip_cov_policy("clip_cov", {clip_cov_loss, Normaliser::Tokens});
const RegisterPolicyLoss kl_cov_policy("kl_cov", {kl_cov_loss, Normaliser::Tokens});

}  // namespace
}  // namespace apus
