// SPDX-License-Identifier: Apache-2.0
// Rewards teach: exact answers rise from a fifth to most. Rewards that have nothing to do with the answers do not,
// and flipped ones take away what was known.
#include "tests/algos/learning.h"

namespace apus {
namespace {

using learning::Student;

const RegisterReward<learning::Reversed> reversed("test reversed");
const RegisterReward<learning::Shuffled> shuffled("test shuffled");
const RegisterReward<learning::Flipped> flipped("test flipped");

GrpoOptions rewarded(const char* function) {
  GrpoOptions o;
  o.reward_funcs = {function};
  return o;
}

double column(const Json& history, size_t step, const char* name) { return history.at(step).at(name).get<double>(); }

TEST(GrpoLearning, ReversesDigits) {
  Student student;
  student.pretrain(0.15);
  const double before = student.exact();
  EXPECT_GE(before, 0.1);
  EXPECT_LE(before, 0.6);
  student.reinforce(rewarded("test reversed"), 120);
  EXPECT_GT(student.exact(), before + 0.4);
  const Json& h = student.history;
  ASSERT_EQ(h.size(), 120u);
  EXPECT_GT(column(h, 119, "reward"), column(h, 0, "reward") + 0.3);
  EXPECT_EQ(column(h, 0, "clip_ratio"), 0) << "one update a round has ratio 1";
  for (size_t i = 0; i < h.size(); ++i) EXPECT_LT(column(h, i, "rollout_mismatch/max"), 1e-3) << i;
  EXPECT_GT(column(h, 5, "completions/tokens_per_second"), 0);
}

TEST(GrpoLearning, NothingOfRewardsThatAreGivenToOthers) {
  Student student;
  student.pretrain(0.15);
  const double before = student.exact();
  student.reinforce(rewarded("test shuffled"), 60);
  EXPECT_LT(student.exact(), before + 0.15);
  student.reinforce(rewarded("test flipped"), 60);
  EXPECT_LT(student.exact(), 0.05);
}

TEST(GrpoLearning, WithSeveralUpdatesOfARoundAndFurtherQuestions) {
  Student student;
  student.pretrain(0.15);
  const double before = student.exact();
  GrpoOptions o = rewarded("test reversed");
  o.loss_type = "dapo", o.epsilon_high = 0.28, o.num_iterations = 2, o.dynamic_sample = true, o.overlong_filter = true;
  student.reinforce(o, 60);
  EXPECT_GT(student.exact(), before + 0.3);
  double clipped = 0, resampled = 0;
  for (const Json& line : student.history) {
    clipped += line.value("clip_ratio", 0.0);
    resampled += line.value("resampled_groups", 0.0);
  }
  EXPECT_GT(clipped, 0) << "the second update of a round has other ratios";
  EXPECT_GT(resampled, 0);
}

}  // namespace
}  // namespace apus
