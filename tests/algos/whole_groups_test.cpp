// SPDX-License-Identifier: Apache-2.0
// Groups whose answers neighbouring ranks give together: each rank sees the rewards of all, and gets the advantages
// that one process would give its answers.
#include "algos/whole_groups.h"

#include <cmath>

#include "device/agree.h"
#include "dist/world.h"
#include "tests/rank_body.h"

namespace apus {
namespace {

constexpr size_t kFunctions = 2;

// Twelve answers of every team of three ranks, in two groups of six; four a rank.
std::vector<Answer> team_answers(int team) {
  std::vector<Answer> out(12);
  for (size_t i = 0; i < out.size(); ++i) {
    Answer& a = out[i];
    a.group = static_cast<int64_t>(i / 6), a.ids.assign(1 + i % 3, 7);
    a.rewards = {0.1 * static_cast<double>((i * 5 + static_cast<size_t>(team)) % 7), i % 4 == 0 ? NAN : 1.0};
    a.reward = a.rewards[0] + 1.0 / 3, a.greedy_reward = 0.25 * static_cast<double>(a.group);
  }
  return out;
}

ScoredAnswers weighted(WholeGroups groups) {
  groups.scored.weights = {1, 0.5};
  return groups.scored;
}

const test::RankBody gathers("whole_groups", [](const auto&) {
  apus::World world({.device = "cpu"});
  const int team = world.rank() / 3, place = world.rank() % 3;
  const std::vector<Answer> all = team_answers(team);
  const auto begin = all.begin() + 4 * place;
  const WholeGroups got = whole_groups({begin, begin + 4}, kFunctions, &world.host(), 3);
  const WholeGroups alone = whole_groups(all, kFunctions, nullptr, 1);
  EXPECT_EQ(got.first, static_cast<size_t>(4 * place));
  EXPECT_EQ(alone.first, 0u);
  EXPECT_EQ(got.scored.groups, alone.scored.groups);
  EXPECT_EQ(got.scored.rewards, alone.scored.rewards);
  EXPECT_EQ(got.scored.lengths, alone.scored.lengths);
  EXPECT_EQ(got.scored.greedy, alone.scored.greedy);

  // One process with the answers of all six ranks.
  std::vector<Answer> everything;
  for (int t = 0; t < 2; ++t)
    for (Answer& a : team_answers(t)) a.group += 2 * t, everything.push_back(std::move(a));
  const ScoredAnswers of_one = weighted(whole_groups(everything, kFunctions, nullptr, 1));
  const auto sum = [&](double x) { return sum_over(world.host(), x) / 3; };
  for (const char* estimator : {"grpo", "rloo", "reinforce_plus_plus", "remax", "opo"})
    for (const char* scale : {"group", "batch", "gdpo"}) {
      const AdvantageRule rule{.estimator = estimator, .scale = scale_named(scale)};
      const std::vector<double> mine = advantages(weighted(got), rule, sum), one = advantages(of_one, rule);
      for (size_t i = 0; i < 4; ++i) {
        const size_t at = got.first + i;
        EXPECT_NEAR(mine[at], one[static_cast<size_t>(team) * 12 + at], 1e-12)
            << estimator << " " << scale << " " << at;
      }
    }
  // At the end of an epoch some rank may have nothing.
  const WholeGroups few =
      whole_groups(place == 0 ? std::vector<Answer>{all[0]} : std::vector<Answer>(), kFunctions, &world.host(), 3);
  EXPECT_EQ(few.scored.rewards.size(), 1u);
  world.host().barrier();
});

TEST(WholeGroups, AreThoseOfOneProcess) {
  const test::Ranks r = test::run_ranks(6, "whole_groups");
  EXPECT_EQ(r.code, 0) << r.said;
}

}  // namespace
}  // namespace apus
