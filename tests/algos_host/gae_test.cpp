// SPDX-License-Identifier: Apache-2.0
#include "algos/gae.h"

#include <gtest/gtest.h>

#include <cmath>

namespace apus {
namespace {

using Numbers = std::vector<double>;

void expect_values(const Numbers& got, const Numbers& wanted, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << i;
}

const Numbers kValues = {0.5, 0.4, 0.6, 0.7}, kRewards = {0, 0, 0, 1};
const std::vector<uint8_t> kAll = {1, 1, 1, 1};

TEST(Gae, KnownNumbers) {
  const Gains far = gains_of(kRewards, kValues, kAll, 1, 1);
  expect_values(far.advantages, {0.5, 0.6, 0.4, 0.3});
  expect_values(far.returns, {1, 1, 1, 1});
  const Gains usual = gains_of(kRewards, kValues, kAll, 1, 0.95);
  expect_values(usual.advantages, {0.437462, 0.565750, 0.385, 0.3});
  expect_values(usual.returns, {0.937462, 0.965750, 0.985, 1});
  const Gains near = gains_of(kRewards, kValues, kAll, 1, 0);
  expect_values(near.advantages, {-0.1, 0.2, 0.1, 0.3});
  expect_values(near.returns, {0.4, 0.6, 0.7, 1});
  const Gains held = gains_of({-0.005, 0.0025, -0.01, 1}, kValues, kAll, 1, 0.95);
  expect_values(held.advantages, {0.425812, 0.558750, 0.375, 0.3});
  expect_values(held.returns, {0.925812, 0.958750, 0.975, 1});
}

TEST(Gae, StepsOverWhatThePolicyDidNotSay) {
  const Numbers rewards = {0, 0, 0, 0, 0, 1}, values = {0.2, 0.3, 0.9, -0.4, 0.5, 0.8};
  const std::vector<uint8_t> own = {1, 1, 0, 0, 1, 1};
  expect_values(gains_of(rewards, values, own, 1, 1).advantages, {0.8, 0.7, 0, 0, 0.5, 0.2});
  const Gains usual = gains_of(rewards, values, own, 1, 0.95);
  expect_values(usual.advantages, {0.732225, 0.6655, 0, 0, 0.49, 0.2});
  expect_values(usual.returns, {0.932225, 0.965500, 0, 0, 0.99, 1});
  expect_values(gains_of(rewards, values, own, 0.99, 0.95).advantages, {0.705065, 0.646534, 0, 0, 0.4801, 0.2});
  Numbers other = values;
  other[2] = 100, other[3] = -100;  // a critic's opinion of an observation is nothing
  expect_values(gains_of(rewards, other, own, 1, 0.95).advantages, usual.advantages, 0);
}

TEST(Gae, ReturnsWithLambdaOneAreTheRewardsToCome) {
  const Numbers rewards = {0.3, -0.2, 0.5, 1};
  for (const Numbers& values : {kValues, Numbers{9, -3, 2, 0}})
    expect_values(gains_of(rewards, values, kAll, 0.9, 1).returns,
                  {0.3 - 0.18 + 0.405 + 0.729, -0.2 + 0.45 + 0.81, 0.5 + 0.9, 1}, 1e-12);
}

TEST(Whitening, KnownNumbers) {
  const RankSum one = [](double x) { return x; };
  std::vector<Numbers> gains = {{0.437462, 0.565750, 0.385, 0.3}};
  whiten(gains, {kAll}, true, one);
  expect_values(gains[0], {0.138462, 1.291197, -0.332943, -1.096716}, 5e-5);
  std::vector<Numbers> two_turns = {{0.732225, 0.6655, 7, 7, 0.49, 0.2}};
  whiten(two_turns, {{1, 1, 0, 0, 1, 1}}, true, one);
  expect_values(two_turns[0], {0.884726, 0.604008, 7, 7, -0.134338, -1.354396}, 5e-5);
  std::vector<Numbers> kept = {{0, 0, 2}};
  whiten(kept, {{1, 1, 1}}, false, one);
  expect_values(kept[0], {2.0 / 3 - 1 / std::sqrt(3.0), 2.0 / 3 - 1 / std::sqrt(3.0), 2.0 / 3 + 2 / std::sqrt(3.0)},
                1e-6);
}

TEST(Whitening, AllAlikeIsZero) {
  std::vector<Numbers> gains = {{0.7, 0.7}, {0.7}};
  whiten(gains, {{1, 1}, {1}}, true, [](double x) { return x; });
  expect_values(gains[0], {0, 0}, 1e-9);
}

TEST(KlCoefficient, FollowsItsTarget) {
  const auto after = [](double divergence) {
    KlCoefficient coefficient(0.2, 6, 10000);
    coefficient.see(divergence, 256);
    return coefficient.value();
  };
  EXPECT_NEAR(after(3), 0.198976, 1e-9);
  EXPECT_NEAR(after(6), 0.2, 1e-9);
  EXPECT_NEAR(after(20), 0.201024, 1e-9);
  KlCoefficient fixed(0.05, std::nullopt, 10000);
  fixed.see(100, 256);
  EXPECT_EQ(fixed.value(), 0.05);
}

}  // namespace
}  // namespace apus
