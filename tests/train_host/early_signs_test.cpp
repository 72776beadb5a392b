// SPDX-License-Identifier: Apache-2.0
// Signs that a run goes wrong: each is seen in the lines that show it alone, and told once.
#include "train/record/early_signs.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

TEST(EarlySigns, AreSeenInTheirLinesAlone) {
  const Json fine = {{"loss", 0.1},
                     {"entropy/mean", 0.5},
                     {"kl", 0.02},
                     {"frac_reward_zero_std", 0.5},
                     {"logps/chosen", -9},
                     {"logps/rejected", -8},
                     {"rollout_mismatch/mean", 0.002},
                     {"num_turns", 1.2},
                     {"objective/kl", 3},
                     {"completions/mean_length", 20},
                     {"completions/clipped_ratio", 0.3}};
  for (const auto& seen : {entropy_collapsed, divergence_ran_away, answers_at_limit, chosen_like_rejected,
                           engine_disagrees, never_replied_to}) {
    EXPECT_FALSE(seen(fine));
    EXPECT_FALSE(seen(Json::object()));
    EXPECT_FALSE(seen({{"kl", nullptr}, {"entropy/mean", nullptr}}));
  }
  const auto with = [&](const char* name, double value) {
    Json line = fine;
    line[name] = value;
    return line;
  };
  EXPECT_TRUE(entropy_collapsed(with("entropy/mean", 0.01)));
  EXPECT_TRUE(entropy_collapsed(with("policy/entropy_avg", 0.01)));
  EXPECT_TRUE(divergence_ran_away(with("kl", 1.5)));
  EXPECT_FALSE(divergence_ran_away({{"kl", 40.0}})) << "of whole answers";
  EXPECT_TRUE(divergence_ran_away(with("objective/kl", 21)));
  EXPECT_TRUE(engine_disagrees(with("rollout_mismatch/mean", 0.2)));
  EXPECT_TRUE(never_replied_to(with("num_turns", 1)));
  EXPECT_FALSE(never_replied_to({{"num_turns", 1.0}, {"reward", 0.9}}));
  EXPECT_TRUE(answers_at_limit(with("completions/clipped_ratio", 0.95)));
  EXPECT_TRUE(chosen_like_rejected(with("logps/rejected", -9)));
}

TEST(EarlySigns, AreToldOnceAfterThreeLines) {
  const Json bad = {{"completions/clipped_ratio", 1.0}}, good = {{"completions/clipped_ratio", 0.0}};
  EarlySigns signs;
  EXPECT_TRUE(signs.see(bad).empty());
  EXPECT_TRUE(signs.see(bad).empty());
  const auto told = signs.see(bad);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("--max_completion_length"), std::string::npos);
  EXPECT_TRUE(signs.see(bad).empty());
  signs.see(good), signs.see(bad), signs.see(bad);
  EXPECT_EQ(signs.see(bad).size(), 1u) << "once more when it was well meanwhile";
}

}  // namespace
}  // namespace apus
