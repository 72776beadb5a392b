// SPDX-License-Identifier: Apache-2.0
// GRPO (Shao et al. 2024): what an answer's reward is above the mean of its group.
#include "algos/advantages.h"

namespace apus {

namespace {
void grpo_group(const ScoredAnswers& a, size_t first, size_t end, std::vector<double>& out) {
  above_the_mean(a, first, end, 1, out);
}

const RegisterEstimator grpo_estimator("grpo", {.of_group = grpo_group, .scale = "group", .takes_one_answer = true});
}  // namespace

}  // namespace apus
