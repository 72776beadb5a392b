// SPDX-License-Identifier: Apache-2.0
// Advantages against vectors that were worked out with plain doubles; their identifiers are kept.
#include "algos/advantages.h"

#include <gtest/gtest.h>

#include <cmath>

namespace apus {
namespace {

using Numbers = std::vector<double>;

void expect_near(const Numbers& got, const Numbers& expected, double tolerance = 2e-6) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

ScoredAnswers one_group(Numbers rewards) {
  ScoredAnswers a;
  a.groups.assign(rewards.size(), 0);
  a.rewards = std::move(rewards);
  return a;
}

Numbers of(const ScoredAnswers& a, const char* estimator, const char* scale, double epsilon = 1e-4) {
  return advantages(a, {.estimator = estimator, .scale = scale_named(scale), .epsilon = epsilon});
}

TEST(Advantages, OfGroups) {
  struct Vector {
    const char* id;
    Numbers rewards, grpo6, grpo4, centred, rloo;
  };
  for (const Vector& v :
       {Vector{"ADV-1",
               {1, 0, 0, 1},
               {0.866024, -0.866024, -0.866024, 0.866024},
               {0.865875, -0.865875, -0.865875, 0.865875},
               {0.5, -0.5, -0.5, 0.5},
               {0.666667, -0.666667, -0.666667, 0.666667}},
        Vector{"ADV-2",
               {1, 0, 0, 0},
               {1.499997, -0.499999, -0.499999, -0.499999},
               {1.499700, -0.499900, -0.499900, -0.499900},
               {0.75, -0.25, -0.25, -0.25},
               {1, -0.333333, -0.333333, -0.333333}},
        Vector{"ADV-4", {1, 1, 1, 1}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
        Vector{"ADV-6",
               {1, 0, 0, 0, 1, 0, 0, 1},
               {1.207612, -0.724567, -0.724567, -0.724567, 1.207612, -0.724567, -0.724567, 1.207612},
               {1.207381, -0.724429, -0.724429, -0.724429, 1.207381, -0.724429, -0.724429, 1.207381},
               {0.625, -0.375, -0.375, -0.375, 0.625, -0.375, -0.375, 0.625},
               {0.714286, -0.428571, -0.428571, -0.428571, 0.714286, -0.428571, -0.428571, 0.714286}}}) {
    SCOPED_TRACE(v.id);
    const ScoredAnswers a = one_group(v.rewards);
    expect_near(of(a, "grpo", "group", 1e-6), v.grpo6);
    expect_near(of(a, "grpo", "group"), v.grpo4);
    expect_near(of(a, "grpo", "none"), v.centred);
    expect_near(of(a, "rloo", "none"), v.rloo);
  }
}

// ADV-B: groups of their own mean, and the deviation of all rewards.
TEST(Advantages, OverTheBatch) {
  ScoredAnswers a;
  a.rewards = {1, 0, 0, 1, 0.5, 1, 0, 0.25, 1, 1, 1, 1};
  a.groups = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  const Numbers got = of(a, "grpo", "batch");
  expect_near(got, {1.091491, -1.091491, -1.091491, 1.091491, 0.136436, 1.227928, -0.955055, -0.409309, 0, 0, 0, 0});
  // Two ranks with half the groups each agree with one that has them all.
  ScoredAnswers mine, others;
  for (size_t i = 0; i < 12; ++i) {
    ScoredAnswers& half = i < 4 ? mine : others;
    half.rewards.push_back(a.rewards[i]), half.groups.push_back(a.groups[i]);
  }
  std::vector<double> of_others;  // what the other rank adds, in the order of the calls
  const AdvantageRule rule{.scale = Scale::Batch};
  double count = 8, sum = 0, squares = 0, mean = 0;
  for (const double r : others.rewards) sum += r;
  for (const double r : a.rewards) mean += r / 12;
  for (const double r : others.rewards) squares += (r - mean) * (r - mean);
  of_others = {count, sum, squares};
  size_t call = 0;
  const Numbers part = advantages(mine, rule, [&](double x) { return x + of_others.at(call++); });
  expect_near(part, {got[0], got[1], got[2], got[3]}, 1e-12);
}

// ADV-M: two reward functions.
TEST(Advantages, OfFunctionsApart) {
  ScoredAnswers a = one_group({1.1, 0.2, 1.3, 0.4});
  expect_near(of(a, "grpo", "group"), {0.657412, -1.033076, 1.033076, -0.657412});
  a.functions = {{1, 0, 1, 0}, {0.2, 0.4, 0.6, 0.8}}, a.weights = {1, 0.5};
  expect_near(of(a, "grpo", "gdpo"), {0.318279, -1.182524, 1.182524, -0.318279});
}

// ADV-N: what is alike gives exactly 0, whatever a sum of it rounds to.
TEST(Advantages, OfRewardsThatAreAllAlike) {
  for (const double reward : {0.1, 0.9, 5.7, 1000.1})
    for (const char* estimator : {"grpo", "rloo", "reinforce_plus_plus", "opo", "grpo_passk"})
      for (const char* scale : {"group", "batch", "none"}) {
        ScoredAnswers a = one_group(Numbers(8, reward));
        a.lengths = {1, 2, 3, 4, 5, 6, 7, 8};
        for (const double advantage : of(a, estimator, scale)) EXPECT_EQ(advantage, 0) << estimator << " " << scale;
      }
}

TEST(Advantages, OfOtherEstimators) {
  ScoredAnswers a = one_group({1, 0, 0.5, 0});
  a.lengths = {2, 4, 2, 8}, a.greedy = {0.25, 0.25, 0.25, 0.25};
  const double base = (1.0 * 2 + 0.5 * 2) / 16;
  expect_near(of(a, "opo", "none"), {1 - base, -base, 0.5 - base, -base});
  expect_near(of(a, "remax", "none"), {0.75, -0.25, 0.25, -0.25});
  expect_near(of(a, "grpo_passk", "none"), {0.5, 0, 0, 0});
  const double mean = 0.375, deviation = std::sqrt((0.625 * 0.625 + 2 * mean * mean + 0.125 * 0.125) / 3);
  expect_near(of(a, "reinforce_plus_plus", "batch"), {0.625 / (deviation + 1e-4), -mean / (deviation + 1e-4),
                                                      0.125 / (deviation + 1e-4), -mean / (deviation + 1e-4)});
}

// Adding a constant to the rewards changes none of them; a factor changes only those that are not divided.
TEST(Advantages, KeepTheirProperties) {
  const Numbers rewards = {0.3, 1.7, -2, 0.9};
  Numbers moved = rewards, doubled = rewards;
  for (double& r : moved) r += 7;
  for (double& r : doubled) r *= 2;
  for (const char* estimator : {"grpo", "rloo", "reinforce_plus_plus"}) {
    expect_near(of(one_group(moved), estimator, "none"), of(one_group(rewards), estimator, "none"), 1e-12);
    expect_near(of(one_group(doubled), estimator, "group", 0), of(one_group(rewards), estimator, "group", 0), 1e-12);
  }
  Numbers rloo = of(one_group(rewards), "grpo", "none");
  for (double& v : rloo) v *= 4.0 / 3;
  expect_near(of(one_group(rewards), "rloo", "none"), rloo, 1e-12);
}

}  // namespace
}  // namespace apus
