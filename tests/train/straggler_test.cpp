// SPDX-License-Identifier: Apache-2.0
#include "train/straggler.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

TEST(Straggler, IsTheOneThatTheOthersWaitFor) {
  const auto found = straggler_of({1.0, 1.1, 2.0, 0.9});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 2U);
  EXPECT_NEAR(found->times, 2, 1e-12);  // as long as the middle one of 0.9, 1.0, 1.1, 2.0
  EXPECT_EQ(straggler_of({3, 1})->rank, 0U);
  EXPECT_FALSE(straggler_of({1.0, 1.1, 1.2}).has_value());  // as ranks differ
  EXPECT_FALSE(straggler_of({0.01, 0.09}).has_value());     // too short to tell
  EXPECT_FALSE(straggler_of({5}).has_value());
  EXPECT_FALSE(straggler_of({}).has_value());
}

}  // namespace
}  // namespace apus
