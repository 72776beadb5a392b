// SPDX-License-Identifier: Apache-2.0
// OPO (Hao et al. 2025): above the mean of the group weighted by lengths, which has the least variance when every
// token has the same gradient.
#include "algos/advantages.h"

namespace apus {

namespace {
void opo_group(const ScoredAnswers& a, size_t first, size_t end, std::vector<double>& out) {
  double sum = 0, length = 0;
  for (size_t i = first; i < end; ++i) sum += a.rewards[i] * a.lengths[i], length += a.lengths[i];
  const double base = length > 0 ? sum / length : 0;
  for (size_t i = first; i < end; ++i) out[i] = a.rewards[i] - base;
}

const RegisterEstimator opo_estimator("opo", {.of_group = opo_group});
}  // namespace

}  // namespace apus
