// SPDX-License-Identifier: Apache-2.0
// Estimates of KL(policy || reference) from the log-probabilities of sampled tokens, l = log p - log q.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <string>

namespace apus {

enum class KlEstimate {
  K1,  // l: unbiased, and as a loss without any gradient on average
  K2,  // l^2 / 2: biased, with the gradient of KL
  K3,  // e^-l - 1 + l: unbiased, never negative, with the gradient of the reverse divergence
};
KlEstimate kl_estimate_named(const std::string& name);

// `bounded`: K3 is held to [-10, 10] and l to [-20, 20], as in ms-swift and verl; TRL bounds neither.
at::Tensor kl_of_tokens(const at::Tensor& logprob_N, const at::Tensor& reference_N, KlEstimate estimate,
                        bool bounded = true);

}  // namespace apus
