// SPDX-License-Identifier: Apache-2.0
// REINFORCE++ with the group's mean as its baseline (Hu 2025), divided by the deviation over the whole batch.
#include "algos/advantages.h"

namespace apus {

namespace {
void reinforce_group(const ScoredAnswers& a, size_t first, size_t end, std::vector<double>& out) {
  above_the_mean(a, first, end, 1, out);
}

const RegisterEstimator reinforce_plus_plus_estimator("reinforce_plus_plus", {.of_group = reinforce_group,
                                                                              .scale = "batch",
                                                                              .kl_in_reward = true,
                                                                              .own_deviation = true});
}  // namespace

}  // namespace apus
