// SPDX-License-Identifier: Apache-2.0
// Answers that are judged while others are drawn: what is said of them is what is said of the whole round.
#include "reward/round_judging.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/eventually.h"
#include "tests/folder.h"

namespace apus {
namespace {

RewardOptions rewards_of(std::vector<std::string> names) {
  RewardOptions o;
  o.reward_funcs = std::move(names), o.reward_timeout = 60;
  return o;
}

struct Round {
  std::vector<Json> rows;
  std::vector<RewardInput> answers;
  explicit Round(size_t count) {
    for (size_t i = 0; i < count; ++i) rows.push_back({{"solution", std::to_string(i / 2)}});
    for (size_t i = 0; i < count; ++i)
      answers.push_back({.completion = str("\\boxed{", i % 3, "}"), .row = &rows[i], .group = static_cast<int64_t>(i)});
  }
};

TEST(RoundJudging, SaysWhatIsSaidOfTheWholeRound) {
  const Round round(12);
  const RewardOptions options =
      rewards_of({"accuracy", "format", "external:while read -r line; do echo ${#line}; done", "accuracy"});
  Rewards rewards(options);
  const Rewards::Scores whole = rewards.score(round.answers);
  for (const size_t step : {1, 5, 7, 11}) {  // the places in different orders
    RoundJudging judging(rewards, round.answers.size());
    for (size_t i = 0; i < 9; ++i) judging.add(i * step % 12, round.answers[i * step % 12]);
    const Rewards::Scores scores = judging.finish(round.answers);
    EXPECT_EQ(scores.totals, whole.totals) << step;
    for (size_t f = 0; f < 4; ++f) EXPECT_EQ(scores.functions[f], whole.functions[f]) << step;
  }
}

// The program has judged the first answer before there is a second one.
TEST(RoundJudging, AProgramWorksWhileAnswersAreDrawn) {
  const test::Folder folder;
  const std::string seen = (folder.path / "seen").string();
  Rewards rewards(rewards_of({"external:while read -r line; do touch " + seen + "; echo 1; done"}));
  const Round round(3);
  RoundJudging judging(rewards, 3);
  judging.add(1, round.answers[1]);
  judging.add(0, round.answers[0]);
  EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(seen); }));
  EXPECT_EQ(judging.finish(round.answers).totals, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(rewards.score(round.answers).totals, (std::vector<double>{1, 1, 1})) << "a later round begins anew";
}

TEST(RoundJudging, WhatFailsIsToldAtTheEnd) {
  Rewards rewards(rewards_of({"external:read -r line; exit 3"}));
  const Round round(2);
  RoundJudging judging(rewards, 2);
  judging.add(0, round.answers[0]);
  EXPECT_THROW(judging.finish(round.answers), Error);
}

TEST(RoundJudging, ARoundThatIsGivenUpLeavesNothing) {
  Rewards rewards(rewards_of({"external:while read -r line; do echo 7; done"}));
  const Round round(2);
  {
    RoundJudging judging(rewards, 2);
    judging.add(0, round.answers[0]);
  }
  EXPECT_EQ(rewards.score(round.answers).totals, (std::vector<double>{7, 7}));
}

TEST(RoundJudging, NoFunctionsNoOpinion) {
  Rewards rewards(rewards_of({}));
  EXPECT_EQ(rewards.score(Round(3).answers).totals, std::vector<double>(3, 0));
}

}  // namespace
}  // namespace apus
