// SPDX-License-Identifier: Apache-2.0
// The run's folder, its log, its event file read back record by record, and the plots.
#include "train/record/run_log.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/lines.h"
#include "base/plot.h"
#include "tests/folder.h"
#include "train/record/block_log.h"

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

TEST(RunLog, ARunThatGoesOnKeepsNoStepTwice) {
  const test::Folder folder;
  const auto steps = [&](const char* file, const char* key) {
    std::string all;
    LineReader reader((folder.path / file).string());
    for (std::string line; reader.next(line);) {
      const Json step = Json::parse(line)[key];
      all += step.is_string() ? step.get<std::string>() + " " : str(step.dump(), " ");
    }
    return all;
  };
  {
    RunLog log({.dir = folder.path, .events_dir = {}, .quiet = true});
    std::string answers;
    for (int64_t step = 1; step <= 5; ++step) {
      log.log(step, {{"loss", 1.0}, {"global_step/max_steps", str(step, "/9")}});
      for (int i = 0; i < 2; ++i) answers += json_text({{"step", step}, {"completion", "a"}}) + "\n";
    }
    write_file_atomic(folder.path / kCompletionsFile, answers + "{\"step\": 6, \"comp");  // killed meanwhile
    log.finish({{"global_step", 5}});
  }
  RunLog again({.dir = folder.path, .events_dir = {}, .quiet = true});
  again.go_on_from(3, Json::array({{{"step", 3}, {"loss", 1.0}}}));
  EXPECT_EQ(steps("logging.jsonl", "global_step/max_steps"), "1/9 2/9 3/9 ");
  EXPECT_EQ(steps(kCompletionsFile, "step"), "1 1 2 2 3 3 ");
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

TEST(RunLog, EndsWithTheCurveThatTells) {
  const auto end = [](const char* key) {
    const test::Folder folder;
    RunLog log({.dir = folder.path});
    for (int step = 1; step <= 5; ++step) log.log(step, {{"loss", 3.0 / step}, {key, 0.1 * step}});
    testing::internal::CaptureStderr();
    log.finish({{"global_step", 5}});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(end("grad_norm").find("train/loss by step"), std::string::npos);
  EXPECT_NE(end("reward").find("train/reward by step"), std::string::npos) << "a loss of rewards says nothing";
  EXPECT_EQ(end("reward").find("train/loss"), std::string::npos);
}

// The records of a log in blocks, put together again; their sums are held against zlib's.
std::vector<std::string> records_of(const std::string& all, const std::string& first) {
  EXPECT_EQ(all.substr(0, first.size()), first);
  std::vector<std::string> records;
  std::string open;
  for (size_t at = first.size(); at + 7 <= all.size();) {
    if (const size_t left = 32768 - at % 32768; left < 7) {
      at += left;
      continue;
    }
    uint32_t sum = 0;
    uint16_t length = 0;
    std::memcpy(&sum, all.data() + at, 4);
    std::memcpy(&length, all.data() + at + 4, 2);
    const std::string summed = all.substr(at + 6, length + 1u);
    EXPECT_EQ(sum, ::crc32(0, reinterpret_cast<const Bytef*>(summed.data()), static_cast<uInt>(summed.size())));
    open += summed.substr(1);
    if (summed[0] == 1 || summed[0] == 4) records.push_back(std::move(open)), open.clear();
    at += 7u + length;
  }
  EXPECT_TRUE(open.empty());
  return records;
}

TEST(BlockLog, RecordsAreCutAtBlocks) {
  const test::Folder folder;
  std::vector<std::string> wanted;
  {
    BlockLog log(folder.path / "log", "seven77");
    // Among them one that leaves less than a head's bytes in its block, one that fills it, and one of several blocks.
    for (const size_t size : {5u, 32768u - 7 - 12 - 7 - 3, 0u, 32768u - 14, 100000u, 1u}) {
      wanted.emplace_back(size, static_cast<char>('a' + wanted.size()));
      log.record(wanted.back());
    }
  }
  EXPECT_EQ(records_of(read_file(folder.path / "log"), "seven77"), wanted);
}

TEST(Tracker, FoldersOfOfflineRuns) {
  const test::Folder folder;
  {
    RunLog log({.dir = folder.path,
                .events_dir = {},
                .quiet = true,
                .services = tracker_names(),
                .tracked = {.dir = folder.path, .project = "p", .name = "v0", .settings = {{"lr", 0.5}}}});
    log.log(5, {{"loss", 2.0}});
    log.log(5, {{"eval_loss", 1.5}});
    log.log(10, {{"loss", 1.0}});
    log.finish({});
  }
  const auto only_file = [&](const char* parent, const char* ending) {
    fs::path found;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path / parent))
      if (entry.path().extension() == ending) found = entry.path();
    return read_file(found);
  };
  using namespace std::string_literals;
  const auto wandb = records_of(only_file("wandb", ".wandb"), ":W&B\xe1\xbe\x00"s);
  ASSERT_EQ(wandb.size(), 6u);  // header, run, two steps, summary, exit
  EXPECT_NE(wandb[1].find("\x0a\x02lr\x82\x01\x03"
                          "0.5"),
            std::string::npos);
  EXPECT_NE(wandb[2].find("\x12\x0a"
                          "train/loss\x82\x01\x03"
                          "2.0"),
            std::string::npos);
  EXPECT_NE(wandb[2].find("eval/loss"), std::string::npos);  // both of step 5
  const auto swanlab = records_of(only_file("swanlog", ".swanlab"), ":SWL\xd6\xe1\x02");
  ASSERT_EQ(swanlab.size(), 8u);  // start, settings, two columns, three figures, finish
  EXPECT_NE(swanlab[2].find("train/loss"), std::string::npos);
  EXPECT_EQ(Json::parse(only_file("swanlog", ".yaml"))["lr"]["value"], 0.5);
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
