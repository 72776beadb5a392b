// SPDX-License-Identifier: Apache-2.0
// Files that are held in memory and written later; what has no room is written at once.
#include "base/held_files.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/files.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

std::function<int64_t()> room(int64_t bytes) {
  return [bytes] { return bytes; };
}

TEST(HeldFiles, AreWrittenLaterByAnotherThread) {
  const test::Folder out;
  HeldFiles held(room(1 << 20));
  held.hold([&] {
    write_file_atomic(out.path / "a", "old");
    write_file_atomic(out.path / "a", "first");
    AtomicFile backwards(out.path / "b");
    backwards.write_at(3, "def", 3);
    backwards.write_at(0, "abc", 3);
    backwards.commit();
    const AtomicFile never(out.path / "c");
  });
  write_file_atomic(out.path / "now", "now");
  EXPECT_EQ(std::distance(fs::directory_iterator(out.path), fs::directory_iterator()), 1);
  EXPECT_EQ(held.bytes(), 14);
  std::thread([&] { held.write(); }).join();
  EXPECT_EQ(read_file(out.path / "a"), "first");
  EXPECT_EQ(read_file(out.path / "b"), "abcdef");
  EXPECT_EQ(std::distance(fs::directory_iterator(out.path), fs::directory_iterator()), 3);
}

TEST(HeldFiles, WhatHasNoRoomIsWrittenAtOnce) {
  const test::Folder out;
  const std::string large(int64_t{100} << 20, 'x');
  int64_t left = int64_t{150} << 20;
  HeldFiles held([&] { return left; });
  held.hold([&] {
    write_file_atomic(out.path / "one", large);
    left -= int64_t{100} << 20;
    AtomicFile two(out.path / "two");
    two.write("begins in memory ");
    two.write(large);
    two.commit();
    EXPECT_TRUE(fs::exists(out.path / "two"));
    write_file_atomic(out.path / "three", "small");
  });
  EXPECT_FALSE(fs::exists(out.path / "one"));
  EXPECT_FALSE(fs::exists(out.path / "three"));
  EXPECT_EQ(read_file(out.path / "two", int64_t{1} << 30), "begins in memory " + large);
  EXPECT_EQ(held.bytes(), std::ssize(large) + 5);
  EXPECT_EQ(held.bytes_without_room(), std::ssize(large) + 17);
  held.write();
  EXPECT_TRUE(read_file(out.path / "one", int64_t{1} << 30) == large);
  EXPECT_EQ(read_file(out.path / "three"), "small");
}

TEST(HeldFiles, SayWhyTheyCannotBeWritten) {
  const test::Folder out;
  fs::create_directories(out.path / "gone");
  HeldFiles held(room(1 << 20));
  held.hold([&] { write_file_atomic(out.path / "gone" / "a", "text"); });
  fs::remove(out.path / "gone");
  test::expect_says(test::refusal(Fault::Io, [&] { held.write(); }), "cannot create");
}

}  // namespace
}  // namespace apus
