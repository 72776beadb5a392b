// SPDX-License-Identifier: Apache-2.0
// From the rewards of answers to their advantages. Statistics are of doubles, and the answers of a group whose rewards
// are all alike get exactly 0: rounding must not become a signal. No tensor library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

enum class Estimator { Grpo, Rloo, ReinforcePlusPlus, Remax, Opo, PassK };
Estimator estimator_named(const std::string& name);
enum class Scale { Group, Batch, None, Gdpo };
Scale scale_named(const std::string& name);

struct AdvantageRule {
  Estimator estimator = Estimator::Grpo;
  Scale scale = Scale::Group;
  double epsilon = 1e-4;  // beside a standard deviation
};

// The sum of one number over all ranks, on all of which it is called equally often.
using RankSum = std::function<double(double)>;

// One for each answer. Deviations are those of a sample (n - 1).
std::vector<double> advantages(
    const ScoredAnswers& answers, const AdvantageRule& rule, const RankSum& over_ranks = [](double x) { return x; });

// [first, end) of each group.
std::vector<std::pair<size_t, size_t>> group_ranges(const std::vector<int64_t>& groups);

struct GroupStatistics {
  double mean = 0, deviation = 0;  // sample deviation; exactly 0 when all are alike
};
GroupStatistics statistics_of(const double* values, size_t count);

}  // namespace apus
