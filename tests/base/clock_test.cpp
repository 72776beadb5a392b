// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

TEST(Clock, DurationsAsPeopleAndSchedulersWriteThem) {
  EXPECT_EQ(duration_of("45s"), 45);
  EXPECT_EQ(duration_of("90m"), 5400);
  EXPECT_EQ(duration_of("3h30m"), 12600);
  EXPECT_EQ(duration_of("1d2h3m4s"), 93784);
  EXPECT_EQ(duration_of("2:30:00"), 9000);
  EXPECT_EQ(duration_of("1-12:00:00"), 129600);
  for (const char* none :
       {"", "90", "3h30", "h", "-5m", "5m3h", "2:30", "1:2:3:4", "1-2", "0s", "9999999999s", "3 h", "1.5h"})
    EXPECT_FALSE(duration_of(none).has_value()) << none;
}

}  // namespace
}  // namespace apus
