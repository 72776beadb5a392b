// SPDX-License-Identifier: Apache-2.0
// FIPO: a token's loss is weighed by how the policy has moved on what came after it, far tokens fading.
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

// y_t = sum over k >= t of decay^(k - t) x_k within each sequence, in log2(N) passes over memory.
at::Tensor decayed_suffix_sums(const PolicyTokens& t, const at::Tensor& x_N, double decay) {
  at::Tensor sum_N = x_N.clone();
  const int64_t count = x_N.numel();
  const int64_t longest = count ? t.lengths().max().item<double>() : 0;
  for (int64_t step = 1; step < longest; step *= 2) {
    at::Tensor next_N = sum_N.clone();
    const at::Tensor same = t.sequence_N.narrow(0, 0, count - step).eq(t.sequence_N.narrow(0, step, count - step));
    next_N.narrow(0, 0, count - step)
        .add_(sum_N.narrow(0, step, count - step) * same * std::pow(decay, static_cast<double>(step)));
    sum_N = next_N;
  }
  return sum_N;
}

at::Tensor fipo_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor log_ratio_N = policy_log_ratio(t, o.level), ratio_N = log_ratio_N.exp();
  const at::Tensor bounded_N = o.delta ? ratio_N.clamp_max(*o.delta) : ratio_N;
  const at::Tensor loss_N =
      at::maximum(-bounded_N * t.advantage_N, -at::clamp(ratio_N, 1 - o.epsilon, 1 + o.epsilon_high) * t.advantage_N);
  at::Tensor moved_N = log_ratio_N.detach();
  if (o.delta) moved_N = at::where(ratio_N.detach().gt(*o.delta), at::zeros_like(moved_N), moved_N);
  const double low = o.fipo_clip_high_only ? 1 : 1 - o.fipo_clip_range;
  at::Tensor weight_N = decayed_suffix_sums(t, moved_N, std::exp2(-1 / o.fipo_decay_rate)).exp();
  weight_N = weight_N.clamp(low, 1 + o.fipo_clip_range);
  // A bad token that has become much likelier is not to be pushed harder still.
  const at::Tensor unsafe_N = t.advantage_N.lt(0).logical_and(ratio_N.detach().gt(o.fipo_safety_threshold));
  weight_N = at::where(unsafe_N, weight_N.clamp(0.8, 1.0), weight_N);
  return loss_N * weight_N;
}

const RegisterPolicyLoss fipo_policy("fipo", {fipo_loss, Normaliser::Tokens});

}  // namespace
}  // namespace apus
