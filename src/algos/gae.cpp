// SPDX-License-Identifier: Apache-2.0
#include "algos/gae.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace apus {

Gains gains_of(const std::vector<double>& rewards, const std::vector<double>& values, const std::vector<uint8_t>& own,
               double gamma, double lambda) {
  require(rewards.size() == values.size() && values.size() == own.size(), Fault::Bug, "an answer of ", own.size(),
          " tokens has ", rewards.size(), " rewards and ", values.size(), " values");
  Gains out{std::vector<double>(own.size(), 0.0), std::vector<double>(own.size(), 0.0)};
  double next_value = 0, advantage = 0;
  for (size_t t = own.size(); t-- > 0;) {
    if (!own[t]) continue;
    advantage = rewards[t] + gamma * next_value - values[t] + gamma * lambda * advantage;
    next_value = values[t];
    out.advantages[t] = advantage, out.returns[t] = advantage + values[t];
  }
  return out;
}

void whiten(std::vector<std::vector<double>>& of_answers, const std::vector<std::vector<uint8_t>>& own, bool shift,
            const RankSum& over_ranks) {
  const auto sum_of = [&](const auto& term) {
    double sum = 0;
    for (size_t i = 0; i < of_answers.size(); ++i)
      for (size_t t = 0; t < of_answers[i].size(); ++t)
        if (own[i][t]) sum += term(of_answers[i][t]);
    return over_ranks(sum);
  };
  const double count = sum_of([](double) { return 1.0; });
  const double mean = sum_of([](double x) { return x; }) / std::max(1.0, count);
  const double squares = sum_of([mean](double x) { return (x - mean) * (x - mean); });
  if (count < 2) return;
  const double factor = 1 / std::sqrt(squares / (count - 1) + 1e-8);
  for (size_t i = 0; i < of_answers.size(); ++i)
    for (size_t t = 0; t < of_answers[i].size(); ++t)
      if (own[i][t]) of_answers[i][t] = (of_answers[i][t] - mean) * factor + (shift ? 0 : mean);
}

void KlCoefficient::see(double divergence, double answers) {
  if (!target_) return;
  value_ *= 1 + std::clamp(divergence / *target_ - 1, -0.2, 0.2) * answers / horizon_;
}

}  // namespace apus
