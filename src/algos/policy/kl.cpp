// SPDX-License-Identifier: Apache-2.0
#include "algos/policy/kl.h"

#include "base/error.h"

namespace apus {

KlEstimate kl_estimate_named(const std::string& name) {
  if (name == "k1") return KlEstimate::K1;
  if (name == "k2") return KlEstimate::K2;
  require(name == "k3", Fault::Bug, "no estimate of the KL divergence is named '", name, "'");
  return KlEstimate::K3;
}

at::Tensor kl_of_tokens(const at::Tensor& logprob_N, const at::Tensor& reference_N, KlEstimate estimate, bool bounded) {
  const at::Tensor l_N = logprob_N - reference_N;
  if (estimate == KlEstimate::K1) return l_N;
  if (estimate == KlEstimate::K2) return l_N.square() / 2;
  const at::Tensor back_N = bounded ? (-l_N).clamp(-20, 20) : -l_N, k3_N = back_N.exp() - back_N - 1;
  return bounded ? k3_N.clamp(-10, 10) : k3_N;
}

}  // namespace apus
