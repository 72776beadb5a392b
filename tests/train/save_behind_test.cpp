// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written behind the steps: by one rank, and in parts by several.
#include "train/save_behind.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/files.h"
#include "base/ports.h"
#include "device/store.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

int64_t much() { return int64_t{1} << 30; }

TEST(SaveBehind, CallsAFullDiskByItsName) {
  const test::Folder out;
  fs::create_directories(out.path / "part");
  SaveBehind save({.room = much, .name = "checkpoint-3"});
  save.copy([&] { write_file_atomic(out.path / "part" / "a", "text"); });
  fs::remove(out.path / "part");
  std::string said;
  bool whole = false;
  save.begin({.whole = [&] { whole = true; }, .not_whole = [&](const std::string& why) { said = why; }});
  test::expect_says(save.written(), "cannot create");
  test::expect_says(save.whole(), "cannot create");
  test::expect_says(said, "cannot create");
  EXPECT_FALSE(whole);
}

// Two ranks of one process, each with a table's end of its own.
struct Pair {
  const int port = free_port().value();
  Store first{{.address = "127.0.0.1", .port = port, .serve = true, .timeout_s = 10}},
      second{{.address = "127.0.0.1", .port = port, .timeout_s = 10}};
  std::unique_ptr<SaveBehind> save(int rank) {
    return std::make_unique<SaveBehind>(SaveBehind::Spec{
        .room = much, .store = rank == 0 ? &first : &second, .parts = 2, .rank = rank, .name = "checkpoint-3"});
  }
};

TEST(SaveBehind, IsWholeWhenAllPartsAre) {
  const test::Folder out;
  Pair ranks;
  const auto a = ranks.save(0), b = ranks.save(1);
  a->copy([&] { write_file_atomic(out.path / "a", "text"); });
  b->copy([&] { write_file_atomic(out.path / "b", "text"); });
  std::atomic<bool> whole{false};
  a->begin({.whole =
                [&] {
                  EXPECT_TRUE(fs::exists(out.path / "a") && fs::exists(out.path / "b"));
                  whole = true;
                },
            .not_whole = [](const std::string& why) { ADD_FAILURE() << why; }});
  EXPECT_EQ(a->written(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(whole || a->done());
  b->begin();
  EXPECT_EQ(b->written() + b->whole() + a->whole(), "");
  EXPECT_TRUE(whole && a->done() && b->done());
}

TEST(SaveBehind, NamesTheRankWhosePartFailed) {
  const test::Folder out;
  fs::create_directories(out.path / "part");
  Pair ranks;
  const auto a = ranks.save(0), b = ranks.save(1);
  a->copy([&] { write_file_atomic(out.path / "a", "text"); });
  b->copy([&] { write_file_atomic(out.path / "part" / "b", "text"); });
  fs::remove(out.path / "part");
  a->begin({.whole = [] { ADD_FAILURE() << "it is not whole"; }, .not_whole = [](const std::string&) {}});
  b->begin();
  test::expect_says(a->whole(), "rank 1: cannot create");
}

// The other rank is gone, and so is the run: nobody waits for it for long.
TEST(SaveBehind, WaitsForLostPartsALittle) {
  Pair ranks;
  std::string said;
  const Stopwatch watch;
  {
    const auto a = ranks.save(0);
    a->copy([] {});
    a->begin({.whole = [] { ADD_FAILURE() << "it is not whole"; }, .not_whole = [&](const auto& why) { said = why; }});
    a->written();
  }
  test::expect_says(said, "the other ranks' parts did not come");
  EXPECT_LT(watch.seconds(), 60);
}

}  // namespace
}  // namespace apus
