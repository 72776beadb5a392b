// SPDX-License-Identifier: Apache-2.0
// The run's folder, its log, its event file read back record by record, and the plots.
#include "train/record/run_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/plot.h"
#include "tests/folder.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

TEST(Crc32c, KnownSums) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

uint32_t unmasked(uint32_t value) {
  value -= 0xa282ead8u;
  return (value << 15) | (value >> 17);
}

TEST(EventFile, RecordsAreFramedAndSummed) {
  const test::Folder folder;
  fs::path path;
  {
    EventFile file(folder.path / "runs");
    file.scalars(300, {{"train/loss", 1.5}, {"train/learning_rate", 1e-4}});
    path = file.path();
  }
  const std::string all = read_file(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < all.size();) {
    uint64_t length = 0;
    uint32_t sum = 0;
    std::memcpy(&length, all.data() + at, 8);
    std::memcpy(&sum, all.data() + at + 8, 4);
    EXPECT_EQ(unmasked(sum), crc32c(all.substr(at, 8)));
    records.push_back(all.substr(at + 12, length));
    std::memcpy(&sum, all.data() + at + 12 + length, 4);
    EXPECT_EQ(unmasked(sum), crc32c(records.back()));
    at += 16 + length;
  }
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  // 9 bytes of time, then field 2 (step) as a varint: 300 = 0xac 0x02.
  EXPECT_EQ(records[1].substr(9, 3), "\x10\xac\x02");
  const size_t tag = records[1].find("train/loss");
  ASSERT_NE(tag, std::string::npos);
  EXPECT_EQ(records[1][tag + 10], '\x15');  // field 2, four bytes
  float value = 0;
  std::memcpy(&value, records[1].data() + tag + 11, 4);
  EXPECT_EQ(value, 1.5f);
}

TEST(RunLog, WritesLinesEventsAndPlots) {
  const test::Folder folder;
  const fs::path run = make_version_dir(folder.path);
  EXPECT_EQ(run.filename().string().substr(0, 3), "v0-");
  EXPECT_EQ(make_version_dir(folder.path).filename().string().substr(0, 3), "v1-");
  RunLog log({.dir = run, .events_dir = run / "runs", .quiet = true});
  for (int step = 1; step <= 5; ++step)
    log.log(step, {{"loss", 3.0 / step}, {"learning_rate", 1e-5 / 3}, {"global_step/max_steps", str(step, "/5")}});
  log.log(5, {{"eval_loss", NAN}});
  log.finish({{"global_step", 5}});
  std::ifstream lines(log.file());
  std::vector<Json> read;
  for (std::string line; std::getline(lines, line);) read.push_back(Json::parse(line));
  ASSERT_EQ(read.size(), 7u);
  EXPECT_EQ(read[2]["loss"], 1.0);
  EXPECT_NEAR(read[2]["learning_rate"].get<double>(), 1e-5 / 3, 1e-10);
  EXPECT_EQ(read[2]["global_step/max_steps"], "3/5");
  EXPECT_TRUE(read[5]["eval_loss"].is_null());
  const std::string plot = read_file(log.images_dir() / "train_loss.svg");
  EXPECT_NE(plot.find("smoothed"), std::string::npos);
  EXPECT_FALSE(fs::exists(log.images_dir() / "train_global_step_max_steps.svg"));
}

TEST(Plot, SmoothingHasNoStartBias) {
  const auto line = smoothed({{0, 2}, {1, 2}, {2, 2}}, 0.9);
  for (const auto& [x, y] : line) EXPECT_NEAR(y, 2, 1e-12);
}

TEST(Plot, SurvivesOddInput) {
  EXPECT_NE(plot_svg("a<b", "x", {}).find("a&lt;b"), std::string::npos);
  EXPECT_NE(plot_svg("one", "x", {{"l", {{1, 5}}}}).find("<circle"), std::string::npos);
  const std::string sketch = plot_text("t", {{0, 4}, {1, 2}, {2, NAN}, {4, 1}}, 9, 4);
  EXPECT_EQ(sketch,
            "t\n        4 |*\n          |\n          |  *\n        1 |        *\n          +---------\n           0    "
            "   4\n");
  EXPECT_EQ(plot_text("none", {}), "none: no points\n");
  EXPECT_EQ(plot_svg("nan", "x", {{"l", {{1, NAN}, {2, INFINITY}}}}).find("nan,"), std::string::npos);
}

TEST(Time, Spoken) {
  EXPECT_EQ(spoken_time(3.6), "4s");
  EXPECT_EQ(spoken_time(3723), "1h 2m 3s");
}

}  // namespace
}  // namespace apus
