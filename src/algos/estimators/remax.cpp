// SPDX-License-Identifier: Apache-2.0
// ReMax (Li et al. 2023): above the reward of the likeliest answer to the same prompt.
#include "algos/advantages.h"

namespace apus {

namespace {
void remax_group(const ScoredAnswers& a, size_t first, size_t end, std::vector<double>& out) {
  for (size_t i = first; i < end; ++i) out[i] = a.rewards[i] - a.greedy[first];
}

const RegisterEstimator remax_estimator("remax", {.of_group = remax_group, .asks_greedy = true});
}  // namespace

}  // namespace apus
