// SPDX-License-Identifier: Apache-2.0
// Schedules against HuggingFace's values.
#include "train/record/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "tests/paths.h"

namespace apus {
namespace {

TEST(Schedule, EqualsHuggingFace) {
  const Json golden = Json::parse(read_file(test::source_dir() / "tests/data/train/lr_schedules.json"));
  for (const auto& [name, entry] : golden.items()) {
    const double base = entry["base_lr"];
    const Json kwargs = entry["kwargs"].value("scheduler_specific_kwargs", Json());
    const Schedule factor = make_schedule(
        {.type = name, .base_lr = base, .total_steps = entry["total"], .warmup_steps = entry["warmup"]}, kwargs);
    for (size_t i = 0; i < entry["lr"].size(); ++i)
      EXPECT_NEAR(base * factor(static_cast<int64_t>(i)), entry["lr"][i].get<double>(), 1e-12) << name << " step " << i;
  }
}

TEST(Schedule, WarmupStableDecay) {
  const ScheduleSpec spec{.type = "warmup_stable_decay", .base_lr = 1, .total_steps = 20, .warmup_steps = 4};
  const Schedule f = make_schedule(spec, {{"num_decay_steps", 6}, {"min_lr_ratio", 0.1}, {"decay_type", "linear"}});
  EXPECT_NEAR(f(0), 0.1, 1e-12);
  EXPECT_NEAR(f(2), 0.5 * 0.9 + 0.1, 1e-12);
  for (const int64_t step : {4, 9, 13}) EXPECT_EQ(f(step), 1.0);
  EXPECT_NEAR(f(17), 0.5 * 0.9 + 0.1, 1e-12);
  EXPECT_NEAR(f(20), 0.1, 1e-12);
  const Schedule root = make_schedule({.type = "wsd", .base_lr = 1, .total_steps = 100}, {{"decay_type", "1-sqrt"}});
  EXPECT_EQ(root(89), 1.0);
  EXPECT_NEAR(root(95), 1 - std::sqrt(0.5), 1e-12);
}

TEST(Schedule, MinimumAsRateOrAsLearningRate) {
  const ScheduleSpec spec{.type = "cosine_with_min_lr", .base_lr = 2e-4, .total_steps = 10};
  EXPECT_NEAR(make_schedule(spec, {{"min_lr", 2e-5}})(10), 0.1, 1e-12);
  EXPECT_THROW(make_schedule(spec, {}), Error);
  EXPECT_THROW(make_schedule(spec, {{"min_lr", 2e-5}, {"min_lr_rate", 0.1}}), Error);
}

TEST(Schedule, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(make_schedule({.type = "cosin"}, {}), Error);
  EXPECT_THROW(make_schedule({.type = "cosine"}, {{"cycles", 2}}), Error);
  EXPECT_THROW(make_schedule({.type = "polynomial", .base_lr = 1e-8}, {}), Error);
}

TEST(Schedule, WarmupLength) {
  EXPECT_EQ(warmup_length(0, 0.05, 30), 2);
  EXPECT_EQ(warmup_length(5, 0.5, 30), 5);
  EXPECT_EQ(warmup_length(0, 0, 30), 0);
}

}  // namespace
}  // namespace apus
