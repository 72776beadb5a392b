// SPDX-License-Identifier: Apache-2.0
// RLOO (Ahmadian et al. 2024): above the mean of the other answers of its group.
#include "algos/advantages.h"

namespace apus {

namespace {
void rloo_group(const ScoredAnswers& a, size_t first, size_t end, std::vector<double>& out) {
  const auto n = static_cast<double>(end - first);
  above_the_mean(a, first, end, n / (n - 1), out);
}

const RegisterEstimator rloo_estimator("rloo", {.of_group = rloo_group, .kl_in_reward = true});
}  // namespace

}  // namespace apus
