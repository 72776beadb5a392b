// SPDX-License-Identifier: Apache-2.0
#include "algos/advantages.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace apus {
namespace {

template <class T>
T rule_named(const std::map<std::string, T>& all, const std::string& name) {
  const auto found = all.find(name);
  require(found != all.end(), Fault::Bug, "no rule of advantages is named '", name, "'");
  return found->second;
}

// Of the values of all ranks.
GroupStatistics statistics_over_ranks(const std::vector<double>& values, const RankSum& over_ranks) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double count = over_ranks(static_cast<double>(values.size()));
  GroupStatistics out;
  out.mean = over_ranks(sum) / std::max(1.0, count);
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  squares = over_ranks(squares);
  out.deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return out;
}

// What is taken off the rewards of one group.
double group_baseline(const ScoredAnswers& a, size_t first, size_t end, Estimator estimator) {
  if (estimator == Estimator::Remax) return a.greedy[first];
  if (estimator != Estimator::Opo) return statistics_of(&a.rewards[first], end - first).mean;
  double sum = 0, length = 0;  // the mean by length has the least variance when every token has the same gradient
  for (size_t i = first; i < end; ++i) sum += a.rewards[i] * a.lengths[i], length += a.lengths[i];
  return length > 0 ? sum / length : 0;
}

bool all_alike(const std::vector<double>& values, size_t first, size_t end) {
  return std::all_of(values.begin() + static_cast<long>(first), values.begin() + static_cast<long>(end),
                     [&](double v) { return v == values[first]; });
}

// The best answer alone is learnt from, by what it is ahead of the second.
void best_of_group(const std::vector<double>& rewards, size_t first, size_t end, std::vector<double>& out) {
  const size_t best = static_cast<size_t>(
      std::max_element(rewards.begin() + static_cast<long>(first), rewards.begin() + static_cast<long>(end)) -
      rewards.begin());
  double second = -INFINITY;
  for (size_t i = first; i < end; ++i)
    if (i != best) second = std::max(second, rewards[i]);
  if (std::isfinite(second)) out[best] = rewards[best] - second;
}

std::vector<double> unscaled(const ScoredAnswers& a, Estimator estimator) {
  std::vector<double> out(a.rewards.size(), 0.0);
  for (const auto& [first, end] : group_ranges(a.groups)) {
    const bool alike = all_alike(a.rewards, first, end);
    if (alike && estimator != Estimator::Remax) continue;
    if (estimator == Estimator::PassK) {
      best_of_group(a.rewards, first, end, out);
      continue;
    }
    const double base = group_baseline(a, first, end, estimator);
    const auto n = static_cast<double>(end - first);
    const double factor = estimator == Estimator::Rloo ? n / (n - 1) : 1;
    for (size_t i = first; i < end; ++i) out[i] = (a.rewards[i] - base) * factor;
  }
  return out;
}

void divide_by_group(std::vector<double>& values, const std::vector<double>& of, const ScoredAnswers& a,
                     double epsilon) {
  for (const auto& [first, end] : group_ranges(a.groups)) {
    const double deviation = statistics_of(&of[first], end - first).deviation;
    for (size_t i = first; i < end; ++i) values[i] /= deviation + epsilon;
  }
}

// Every function's rewards are normalised in their group before they are added: one with a wide range does not drown
// the others.
std::vector<double> normalised_apart(const ScoredAnswers& a, const AdvantageRule& rule, const RankSum& over_ranks) {
  std::vector<double> out(a.rewards.size(), 0.0);
  for (size_t f = 0; f < a.functions.size(); ++f) {
    for (const auto& [first, end] : group_ranges(a.groups)) {
      std::vector<double> known;
      for (size_t i = first; i < end; ++i)
        if (!std::isnan(a.functions[f][i])) known.push_back(a.functions[f][i]);
      const GroupStatistics s = statistics_of(known.data(), known.size());
      if (s.deviation == 0) continue;
      for (size_t i = first; i < end; ++i)
        if (const double r = a.functions[f][i]; !std::isnan(r))
          out[i] += a.weights[f] * (r - s.mean) / (s.deviation + rule.epsilon);
    }
  }
  const GroupStatistics all = statistics_over_ranks(out, over_ranks);
  for (double& v : out) v /= all.deviation + rule.epsilon;
  return out;
}

}  // namespace

Estimator estimator_named(const std::string& name) {
  return rule_named<Estimator>({{"grpo", Estimator::Grpo},
                                {"rloo", Estimator::Rloo},
                                {"reinforce_plus_plus", Estimator::ReinforcePlusPlus},
                                {"remax", Estimator::Remax},
                                {"opo", Estimator::Opo},
                                {"grpo_passk", Estimator::PassK}},
                               name);
}

Scale scale_named(const std::string& name) {
  return rule_named<Scale>(
      {{"group", Scale::Group}, {"batch", Scale::Batch}, {"none", Scale::None}, {"gdpo", Scale::Gdpo}}, name);
}

std::vector<std::pair<size_t, size_t>> group_ranges(const std::vector<int64_t>& groups) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = 0; i < groups.size(); ++i)
    if (i == 0 || groups[i] != groups[i - 1])
      out.emplace_back(i, i + 1);
    else
      out.back().second = i + 1;
  return out;
}

GroupStatistics statistics_of(const double* values, size_t count) {
  if (count == 0) return {};
  if (std::all_of(values, values + count, [&](double v) { return v == values[0]; })) return {.mean = values[0]};
  GroupStatistics out;
  for (size_t i = 0; i < count; ++i) out.mean += values[i];
  out.mean /= static_cast<double>(count);
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += (values[i] - out.mean) * (values[i] - out.mean);
  out.deviation = std::sqrt(squares / static_cast<double>(count - 1));
  return out;
}

std::vector<double> advantages(const ScoredAnswers& answers, const AdvantageRule& rule, const RankSum& over_ranks) {
  if (rule.scale == Scale::Gdpo) return normalised_apart(answers, rule, over_ranks);
  std::vector<double> out = unscaled(answers, rule.estimator);
  // REINFORCE++ divides by the deviation of what it has; the others by that of the rewards.
  const bool own = rule.estimator == Estimator::ReinforcePlusPlus;
  if (rule.scale == Scale::Group) {
    const std::vector<double> of = own ? out : answers.rewards;
    divide_by_group(out, of, answers, rule.epsilon);
  } else if (rule.scale == Scale::Batch) {
    const double deviation = statistics_over_ranks(own ? out : answers.rewards, over_ranks).deviation;
    for (double& v : out) v /= deviation + rule.epsilon;
  }
  return out;
}

}  // namespace apus
