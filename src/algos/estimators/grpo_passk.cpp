// SPDX-License-Identifier: Apache-2.0
// Pass@k (Walder and Karkhanis 2025): of a group only the best answer is learnt from, by what it is ahead of the next.
#include <algorithm>
#include <cmath>

#include "algos/advantages.h"

namespace apus {

namespace {
void passk_group(const ScoredAnswers& a, size_t first, size_t end, std::vector<double>& out) {
  const auto begin = a.rewards.begin();
  const auto best = static_cast<size_t>(
      std::max_element(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(end)) - begin);
  double second = -INFINITY;
  for (size_t i = first; i < end; ++i)
    if (i != best) second = std::max(second, a.rewards[i]);
  if (std::isfinite(second)) out[best] = a.rewards[best] - second;
}

const RegisterEstimator grpo_passk_estimator("grpo_passk", {.of_group = passk_group, .scale = "group"});
}  // namespace

}  // namespace apus
