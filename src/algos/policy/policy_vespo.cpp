// SPDX-License-Identifier: Apache-2.0
// VESPO: the whole sequence's ratio W weighs its tokens by W^k e^(lambda (1 - W)), which falls softly on both sides.
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor vespo_loss(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor log_w_N = t.spread(t.sums(t.log_ratio().detach()).clamp(-20, 20));
  const auto by_sign = [&](double good, double bad) {
    return at::where(t.advantage_N.gt(0), at::full_like(log_w_N, good), at::full_like(log_w_N, bad));
  };
  const at::Tensor weight_N = (by_sign(o.vespo_k_pos, o.vespo_k_neg) * log_w_N +
                               by_sign(o.vespo_lambda_pos, o.vespo_lambda_neg) * (1 - log_w_N.exp()))
                                  .exp();
  return -weight_N * t.advantage_N * t.logprob_N;
}

const RegisterPolicyLoss vespo_policy("vespo", {vespo_loss, Normaliser::Tokens});

}  // namespace
}  // namespace apus
