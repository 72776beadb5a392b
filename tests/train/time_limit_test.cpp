// SPDX-License-Identifier: Apache-2.0
#include "train/time_limit.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

TEST(TimeLimit, LeavesTimeForAStepAndACheckpoint) {
  TimeLimit none(0, {});
  none.step_took(1e9);
  EXPECT_FALSE(none.any());
  EXPECT_FALSE(none.is_near());

  TimeLimit hour(3600, {});
  EXPECT_FALSE(hour.is_near());
  hour.step_took(1000), hour.step_took(10);
  EXPECT_EQ(hour.needed(), 1500 + 72);
  EXPECT_FALSE(hour.is_near());
  hour.save_took(1400);  // 2400 are too few for both once more, with a margin
  EXPECT_TRUE(hour.is_near());

  TimeLimit short_steps(3600, {});
  short_steps.save_took(1300);
  EXPECT_FALSE(short_steps.is_near());
  EXPECT_TRUE(short_steps.is_near(2));  // one is being written
}

}  // namespace
}  // namespace apus
