// SPDX-License-Identifier: Apache-2.0
// Rows of logits and wishes that decide at edges, and what the host's rules draw of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/answer/sampling_rules.h"

namespace apus::testing_draws {

using Row = std::vector<float>;

inline Row normal_row(size_t size, uint64_t seed, double spread) {
  Random random(seed);
  Row out(size);
  for (float& x : out) x = static_cast<float>(spread * random.normal());
  return out;
}

inline std::map<std::string, std::vector<Row>> kinds_of_rows(size_t size) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::map<std::string, std::vector<Row>> out;
  out["wide"] = {normal_row(size, 1, 4), normal_row(size, 2, 4)};
  out["narrow"] = {normal_row(size, 3, 0.5)};
  out["far from 0"] = {normal_row(size, 4, 2), normal_row(size, 5, 2)};
  for (float& x : out["far from 0"][0]) x += 300;
  for (float& x : out["far from 0"][1]) x -= 300;
  out["ties"] = {normal_row(size, 6, 2), Row(size, 0.f)};
  for (float& x : out["ties"][0]) x = std::round(x);
  for (size_t i = 0; i < size; i += 2) out["ties"][1][i] = -0.f;
  out["few possible"] = {normal_row(size, 7, 2), Row(size, kNever)};
  for (size_t i = 0; i < size; ++i)
    if (i % 3) out["few possible"][0][i] = kNever;
  out["few possible"][1][size - 1] = -5;
  out["peak"] = {Row(size, -40.f)};
  out["peak"][0][size / 2] = 40;
  out["unusable"] = {Row(size, kNever), normal_row(size, 8, 1), normal_row(size, 9, 1)};
  out["unusable"][1][size / 3] = std::numeric_limits<float>::quiet_NaN();
  out["unusable"][2][0] = std::numeric_limits<float>::infinity();
  return out;
}

// Log-probabilities asked for in every third way.
inline std::vector<Sampling> settings() {
  std::vector<Sampling> out;
  for (const double temperature : {0.0, 0.05, 0.7, 1.0, 2.0, 100.0})
    for (const int64_t top_k : {0, 1, 7, 300})
      for (const double top_p : {1.0, 0.95, 0.5, 1e-9, 0.0})
        for (const double min_p : {0.0, 0.1})
          for (const double epsilon : {0.0, 2e-3}) {
            Sampling s{.temperature = temperature, .top_p = top_p, .min_p = min_p, .epsilon_cutoff = epsilon};
            s.top_k = top_k;
            s.seed = out.size();
            s.top_logprobs = out.size() % 3 == 0 ? -1 : 0;
            s.tempered_logprobs = out.size() % 3 == 2;
            out.push_back(s);
          }
  return out;
}

constexpr int32_t kSeenTokens = 4;  // where all of these draws stand

// Rule: as ops/draw_tokens.h has it.
template <class Rule>
Rule rule_of(const Sampling& s, double row) {
  return {.row = row,
          .temperature = s.temperature,
          .top_k = static_cast<double>(s.top_k),
          .top_p = s.top_p,
          .min_p = s.min_p,
          .epsilon_cutoff = s.epsilon_cutoff,
          .number = draw_number(s.seed, kSeenTokens),
          .logprob = s.top_logprobs < 0                         ? 0.0
                     : s.tempered_logprobs && s.temperature > 0 ? 2.0
                                                                : 1.0};
}

inline void expect_drawn(const float* got, Row row, const Sampling& s, const std::string& what) {
  const std::vector<int32_t> seen(kSeenTokens, 0);
  const TokenCounts none;
  const float largest = *std::max_element(row.begin(), row.end());
  const TokenOut wanted = next_token(row, s, {seen, kSeenTokens, none});
  const std::string where = what + ": temperature " + std::to_string(s.temperature) + ", top_k " +
                            std::to_string(s.top_k) + ", top_p " + std::to_string(s.top_p) + ", min_p " +
                            std::to_string(s.min_p) + ", epsilon_cutoff " + std::to_string(s.epsilon_cutoff);
  EXPECT_EQ(static_cast<int32_t>(got[0]), wanted.id) << where;
  // The host holds logits over the temperature as f32.
  const double rounding = wanted.id < 0 || s.temperature == 0 ? 0 : 2e-7 * std::abs(largest) / s.temperature;
  EXPECT_NEAR(got[1], wanted.logprob, 1e-5 * (1 + std::abs(wanted.logprob)) + rounding) << where;
}

}  // namespace apus::testing_draws
