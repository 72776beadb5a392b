// SPDX-License-Identifier: Apache-2.0
// DRO: the policy gradient, with the squared log-ratio holding the policy back instead of a clip.
#include "algos/policy/policy_loss.h"

namespace apus {
namespace {

at::Tensor dro_loss(const PolicyTokens& t, const PolicyOptions& o) {
  return -(t.logprob_N * t.advantage_N - o.dro_beta / 2 * t.log_ratio().square());
}

const RegisterPolicyLoss dro_policy("dro", {dro_loss, Normaliser::Tokens});

}  // namespace
}  // namespace apus
