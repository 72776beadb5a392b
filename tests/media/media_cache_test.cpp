// SPDX-License-Identifier: Apache-2.0
#include "media/media_cache.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

// Of 100 numbers, so 400 bytes.
MadeMedium medium(const std::string& digest) {
  MediaContent content;
  content.values.assign(100, 0.5F), content.digest = digest;
  MadeMedium made;
  made.media.content = std::make_shared<const MediaContent>(std::move(content)), made.size = {10, 10};
  return made;
}

TEST(MediaCache, MakesOnceWhatIsKept) {
  MediaCache cache(1000);
  int made = 0;
  const auto get = [&](const std::string& key) {
    return cache.get(key, [&] { return ++made, medium(key); }).media.content->digest;
  };
  EXPECT_EQ(get("a"), "a");
  EXPECT_EQ(get("a"), "a");
  EXPECT_EQ(get("b"), "b");
  EXPECT_EQ(made, 2);
  EXPECT_EQ(get("a"), "a");
  EXPECT_EQ(get("c"), "c");  // two have room: b was used longest ago
  EXPECT_EQ(made, 3);
  EXPECT_EQ(get("a"), "a");
  EXPECT_EQ(made, 3);
  EXPECT_EQ(get("b"), "b");
  EXPECT_EQ(made, 4);
  const MediaCache::Counts counts = cache.counts();
  EXPECT_EQ(counts.made, 4);
  EXPECT_EQ(counts.found, 3);
  EXPECT_EQ(counts.bytes, 800);
  EXPECT_EQ(counts.most_bytes, 1000);
}

TEST(MediaCache, HoldsNothingThatIsLargerThanItself) {
  MediaCache cache(399);
  for (int i = 0; i < 2; ++i) cache.get("a", [] { return medium("a"); });
  EXPECT_EQ(cache.counts().made, 2);
  EXPECT_EQ(cache.counts().bytes, 0);
}

TEST(MediaCache, WhatCannotBeMadeIsAskedForAgain) {
  MediaCache cache(1000);
  EXPECT_THROW(cache.get("a", []() -> MadeMedium { throw std::runtime_error("broken"); }), std::runtime_error);
  EXPECT_EQ(cache.get("a", [] { return medium("whole"); }).media.content->digest, "whole");
}

}  // namespace
}  // namespace apus
