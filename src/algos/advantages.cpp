// SPDX-License-Identifier: Apache-2.0
#include "algos/advantages.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {
namespace {

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

bool all_alike(const std::vector<double>& values, size_t first, size_t end) {
  return std::all_of(values.begin() + static_cast<long>(first), values.begin() + static_cast<long>(end),
                     [&](double v) { return v == values[first]; });
}

std::vector<double> unscaled(const ScoredAnswers& a, const Estimator& estimator) {
  std::vector<double> out(a.rewards.size(), 0.0);
  for (const auto& [first, end] : group_ranges(a.groups))
    if (estimator.asks_greedy || !all_alike(a.rewards, first, end)) estimator.of_group(a, first, end, out);
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

const Estimator& estimator_named(const std::string& name) {
  const Estimator* const found = Registry<Estimator>::of().find(name);
  require(found, Fault::Bug, "no estimator of advantages is named '", name, "'");
  return *found;
}

std::vector<std::string> estimator_names() {
  std::vector<std::string> out;
  for (const auto& [name, estimator] : Registry<Estimator>::of().all()) out.push_back(name);
  return out;
}

std::string estimators_with(bool Estimator::*property) {
  std::vector<std::string> out;
  for (const auto& [name, estimator] : Registry<Estimator>::of().all())
    if (estimator.*property) out.push_back(name);
  return join(out);
}

void above_the_mean(const ScoredAnswers& answers, size_t first, size_t end, double factor, std::vector<double>& out) {
  const double mean = statistics_of(&answers.rewards[first], end - first).mean;
  for (size_t i = first; i < end; ++i) out[i] = (answers.rewards[i] - mean) * factor;
}

Scale scale_named(const std::string& name) {
  static const std::map<std::string, Scale> all = {
      {"group", Scale::Group}, {"batch", Scale::Batch}, {"none", Scale::None}, {"gdpo", Scale::Gdpo}};
  const auto found = all.find(name);
  require(found != all.end(), Fault::Bug, "no scale of advantages is named '", name, "'");
  return found->second;
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
  const Estimator& estimator = estimator_named(rule.estimator);
  std::vector<double> out = unscaled(answers, estimator);
  const bool own = estimator.own_deviation;
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
