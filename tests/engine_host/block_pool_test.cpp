// SPDX-License-Identifier: Apache-2.0
// The block pool by its rules, and against a slow model of itself under random use.
#include "engine/schedule/block_pool.h"

#include <gtest/gtest.h>

#include <list>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace apus {
namespace {

std::vector<int32_t> tokens(int32_t seed, int32_t count = 4) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(seed * 100 + i);
  return out;
}

TEST(BlockPool, GivesEachBlockOnce) {
  BlockPool pool({.blocks = 5});
  std::set<int32_t> seen;
  for (int i = 0; i < 5; ++i) seen.insert(pool.take());
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.take(), -1);
  EXPECT_EQ(pool.in_use(), 5);
  pool.release(3);
  EXPECT_EQ(pool.take(), 3);
}

TEST(BlockPool, ContentIsSharedWithoutCopy) {
  BlockPool pool({.blocks = 3});
  const BlockHash h = pool.chain(pool.root(0), tokens(1));
  const int32_t b = pool.take();
  EXPECT_EQ(pool.share(h), -1);
  pool.publish(b, h);
  EXPECT_EQ(pool.share(h), b);
  EXPECT_EQ(pool.references(b), 2);
  pool.release(b);
  pool.release(b);
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.share(h), b) << "released, yet still findable";
  EXPECT_EQ(pool.available(), 2);
}

TEST(BlockPool, TheOldestContentGoesFirst) {
  BlockPool pool({.blocks = 3});
  std::vector<BlockHash> h;
  for (int32_t i = 0; i < 3; ++i) {
    h.push_back(pool.chain(pool.root(0), tokens(i)));
    pool.publish(pool.take(), h.back());
  }
  for (const int32_t b : {1, 0, 2}) pool.release(b);
  EXPECT_EQ(pool.share(h[1]), 1);  // used again: the newest now
  pool.release(1);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.share(h[0]), -1);
  EXPECT_EQ(pool.share(h[1]), 1);
}

TEST(BlockPool, TheFirstOfEqualContentsStays) {
  BlockPool pool({.blocks = 2});
  const BlockHash h = pool.chain(pool.root(0), tokens(1));
  pool.publish(pool.take(), h);
  pool.publish(pool.take(), h);
  EXPECT_EQ(pool.findable(), 1);
  pool.release(1);
  pool.release(0);
  EXPECT_EQ(pool.findable(), 1);
  EXPECT_EQ(pool.share(h), 0);
}

TEST(BlockPool, HashesNameTheWholePast) {
  const BlockPool pool({.blocks = 1});
  std::set<std::pair<uint64_t, uint64_t>> seen;
  const auto add = [&](BlockHash h) { EXPECT_TRUE(seen.emplace(h.high, h.low).second); };
  for (uint64_t salt = 0; salt < 3; ++salt) {
    add(pool.root(salt));
    for (int32_t i = 0; i < 200; ++i) {
      const BlockHash first = pool.chain(pool.root(salt), tokens(i));
      add(first);
      add(pool.chain(first, tokens(i)));
      add(pool.chain(first, tokens(i + 1)));
    }
  }
  const auto a = tokens(7), b = std::vector<int32_t>{701, 700, 702, 703};
  EXPECT_NE(pool.chain(pool.root(0), a), pool.chain(pool.root(0), b));
  EXPECT_EQ(pool.chain(pool.root(0), a), pool.chain(pool.root(0), tokens(7)));
}

// Whatever differs in the media of a block, or where a span crosses its border, is another content.
TEST(BlockPool, HashesNameTheMedia) {
  const BlockPool pool({.blocks = 1});
  const auto ids = std::vector<int32_t>(4, 7);
  std::set<std::pair<uint64_t, uint64_t>> seen;
  const auto hash = [&](const std::vector<MediaItem>& media, int64_t begin) {
    const BlockHash h = pool.chain(pool.root(0), ids, media, begin);
    return std::pair(h.high, h.low);
  };
  const auto add = [&](const std::vector<MediaItem>& media, int64_t begin = 0) {
    EXPECT_TRUE(seen.insert(hash(media, begin)).second) << seen.size();
  };
  add({});
  add({{"cat", 0, 4}});
  add({{"dog", 0, 4}});
  add({{"cat", 1, 4}});
  add({{"cat", 0, 5}});
  add({{"cat", 0, 40}}, 4);
  add({{"cat", 0, 40}}, 8);
  add({{"cat", 0, 2}, {"dog", 2, 2}});
  add({{"dog", 0, 2}, {"cat", 2, 2}});
  add({{std::string("cat\0", 4), 0, 4}});  // as if the word's padding were text
  add({{"01234567cat", 0, 4}});
  add({{"01234567", 0, 4}});
  EXPECT_EQ(hash({{"cat", 2, 4}}, 0), hash({{"cat", 10, 4}}, 8)) << "what comes before is the chain's business";
  EXPECT_EQ(pool.chain(pool.root(0), ids), pool.chain(pool.root(0), ids, {}, 8)) << "text has no places";
}

TEST(BlockPool, ForgetsEverythingWhenTold) {
  BlockPool pool({.blocks = 3});
  const BlockHash h = pool.chain(pool.root(0), tokens(1)), other = pool.chain(pool.root(0), tokens(2));
  pool.publish(pool.take(), h);
  pool.publish(pool.take(), other);
  pool.release(0);
  pool.forget_content();
  EXPECT_EQ(pool.share(h), -1);
  EXPECT_EQ(pool.share(other), -1);
  EXPECT_EQ(pool.available(), 2);
  pool.release(1);
  EXPECT_EQ(pool.available(), 3);
}

TEST(BlockPool, MisuseIsFound) {
  BlockPool pool({.blocks = 2});
  EXPECT_THROW(pool.release(0), Error);
  EXPECT_THROW(pool.release(2), Error);
  EXPECT_THROW(pool.publish(1, {}), Error);
  EXPECT_THROW(BlockPool({.blocks = 0}), Error);
}

TEST(BlockPool, WithoutCachingNothingIsFound) {
  BlockPool pool({.blocks = 2, .caching = false});
  const BlockHash h = pool.chain(pool.root(0), tokens(1));
  pool.publish(pool.take(), h);
  EXPECT_EQ(pool.share(h), -1);
}

// Against a model that keeps a list of evictable blocks and searches it.
TEST(BlockPool, RandomUseAgreesWithASlowModel) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const auto count = static_cast<int32_t>(1 + random.below(12));
    BlockPool pool({.blocks = count});
    std::vector<BlockHash> hashes;
    for (int32_t i = 0; i < 20; ++i) hashes.push_back(pool.chain(pool.root(0), tokens(i)));
    std::map<int32_t, int> refs;        // block -> references
    std::map<int32_t, size_t> content;  // block -> index of its hash
    std::list<int32_t> evictable;
    std::vector<int32_t> held;  // one entry a reference
    for (int step = 0; step < 600; ++step) {
      const uint64_t what = random.below(10);
      if (what < 4) {
        const int32_t b = pool.take();
        if (b < 0) {
          ASSERT_EQ(static_cast<int32_t>(refs.size()), count);
          continue;
        }
        ASSERT_FALSE(refs.count(b));
        if (content.count(b)) {
          ASSERT_EQ(static_cast<int32_t>(refs.size() + evictable.size()), count) << "evicted although one was free";
          ASSERT_EQ(evictable.front(), b);
          evictable.pop_front();
          content.erase(b);
        }
        refs[b] = 1;
        held.push_back(b);
      } else if (what < 6 && !held.empty()) {
        const int32_t b = held[random.below(held.size())];
        const size_t h = random.below(hashes.size());
        if (content.count(b)) continue;
        pool.publish(b, hashes[h]);
        bool known = false;
        for (const auto& [block, index] : content) known |= index == h;
        if (!known) content[b] = h;
      } else if (what < 7) {
        const size_t h = random.below(hashes.size());
        int32_t wanted = -1;
        for (const auto& [block, index] : content)
          if (index == h) wanted = block;
        ASSERT_EQ(pool.share(hashes[h]), wanted);
        if (wanted < 0) continue;
        if (refs[wanted]++ == 0) evictable.remove(wanted);
        held.push_back(wanted);
      } else if (!held.empty()) {
        const size_t i = random.below(held.size());
        const int32_t b = held[i];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
        pool.release(b);
        if (--refs[b] == 0) {
          refs.erase(b);
          if (content.count(b)) evictable.push_back(b);
        }
      }
      ASSERT_EQ(pool.in_use(), static_cast<int32_t>(refs.size()));
      ASSERT_EQ(pool.findable(), static_cast<int32_t>(content.size()));
      for (const auto& [b, n] : refs) ASSERT_EQ(pool.references(b), n);
    }
  }
}

}  // namespace
}  // namespace apus
