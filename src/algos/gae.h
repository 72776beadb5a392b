// SPDX-License-Identifier: Apache-2.0
// What PPO makes of rewards and a critic's values before it learns: generalised advantage estimation, whitening over
// all ranks, and a coefficient of the divergence that follows a target. In doubles, without a tensor library.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algos/advantages.h"

namespace apus {

struct Gains {
  std::vector<double> advantages, returns;
};
// delta_t = r_t + gamma V_t+1 - V_t, A_t = delta_t + gamma lambda A_t+1, return = A + V; V behind the end is 0. Tokens
// that the policy did not say (own 0: observations) are stepped over: the token before them looks at the next of its
// own. They themselves get 0.
Gains gains_of(const std::vector<double>& rewards, const std::vector<double>& values, const std::vector<uint8_t>& own,
               double gamma, double lambda);

// To mean 0 and variance 1 (n - 1) over all own tokens of all answers and ranks; without `shift` the mean stays.
void whiten(std::vector<std::vector<double>>& of_answers, const std::vector<std::vector<uint8_t>>& own, bool shift,
            const RankSum& over_ranks);

// How strongly a divergence is held against an answer: as given, or moved towards a target, by a fifth at most of the
// share that the answers are of the horizon.
class KlCoefficient {
 public:
  KlCoefficient(double start, std::optional<double> target, double horizon)
      : value_(start), target_(target), horizon_(horizon) {}
  double value() const { return value_; }
  void restore(double value) { value_ = value; }
  void see(double divergence, double answers);  // of a round: the mean over answers

 private:
  double value_;
  std::optional<double> target_;
  double horizon_;
};

}  // namespace apus
