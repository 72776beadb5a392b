// SPDX-License-Identifier: Apache-2.0
// From the rewards of answers to their advantages. Statistics are of doubles, and the answers of a group whose rewards
// are all alike get exactly 0: rounding must not become a signal. No tensor library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/registry.h"

namespace apus {

// The answers at hand, whole groups one after the other.
struct ScoredAnswers {
  std::vector<double> rewards;
  std::vector<int64_t> groups;                 // of each answer, ascending
  std::vector<double> lengths;                 // tokens; opo
  std::vector<double> greedy;                  // what the prompt's likeliest answer was given; remax
  std::vector<std::vector<double>> functions;  // of every reward function, of each answer; nan: no opinion; gdpo
  std::vector<double> weights;                 // of the functions
};

// What an answer is better by than was to be expected: one of --advantage_estimator, a file of estimators/ each.
struct Estimator {
  // Writes those of one group, the answers [first, end), before they are divided by a deviation.
  void (*of_group)(const ScoredAnswers& answers, size_t first, size_t end, std::vector<double>& out);
  std::string scale = "none";     // --scale_rewards, where it is not given
  bool kl_in_reward = false;      // --kl_in_reward, where it is not given
  bool own_deviation = false;     // they are divided by their own deviation, not by that of the rewards
  bool asks_greedy = false;       // compares with the likeliest answer, also where all rewards are alike
  bool takes_one_answer = false;  // a group of one has a meaning (with a teacher)
};

struct RegisterEstimator {
  RegisterEstimator(const char* name, Estimator estimator) {
    Registry<Estimator>::of().add(name, std::move(estimator));
  }
};

const Estimator& estimator_named(const std::string& name);
std::vector<std::string> estimator_names();
// "rloo, remax": those that have a property.
std::string estimators_with(bool Estimator::*property);

enum class Scale { Group, Batch, None, Gdpo };
Scale scale_named(const std::string& name);

struct AdvantageRule {
  std::string estimator = "grpo";
  Scale scale = Scale::Group;
  double epsilon = 1e-4;  // beside a standard deviation
};

// The sum of one number over all ranks, on all of which it is called equally often.
using RankSum = std::function<double(double)>;

// One for each answer. Deviations are those of a sample (n - 1).
std::vector<double> advantages(
    const ScoredAnswers& answers, const AdvantageRule& rule, const RankSum& over_ranks = [](double x) { return x; });

// What rewards of a group are above its mean, each times a factor.
void above_the_mean(const ScoredAnswers& answers, size_t first, size_t end, double factor, std::vector<double>& out);

// [first, end) of each group.
std::vector<std::pair<size_t, size_t>> group_ranges(const std::vector<int64_t>& groups);

struct GroupStatistics {
  double mean = 0, deviation = 0;  // sample deviation; exactly 0 when all are alike
};
GroupStatistics statistics_of(const double* values, size_t count);

}  // namespace apus
