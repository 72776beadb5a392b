// SPDX-License-Identifier: Apache-2.0
// The scheduler under every kind of traffic, driven by a stand-in for the model: it remembers what was written into
// which place of the cache, so a wrong block, a stale prefix or a skipped token shows at once.
#include "engine/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace apus {
namespace {

Scheduler::Spec spec(int32_t blocks, int64_t sequences, int64_t budget, int32_t block_size = 4, bool caching = true) {
  return {.pool = {.blocks = blocks, .block_size = block_size, .caching = caching, .secret = 7},
          .max_sequences = sequences,
          .max_step_tokens = budget};
}

std::vector<int32_t> prompt(int32_t length, int32_t first = 1) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < length; ++i) out.push_back(first + i);
  return out;
}

using Media = std::vector<MediaItem>;

// What a model would see in place of the token at `i`: which media, and which part of it. 0: the token itself.
uint64_t seen_at(const Media& media, int64_t i) {
  for (const MediaItem& m : media)
    if (i >= m.begin && i < m.begin + m.length)
      return mix(stream_named(m.digest), static_cast<uint64_t>(m.length), static_cast<uint64_t>(i - m.begin));
  return 0;
}

// Runs plans as an engine does. The next token of a sequence is a hash of all tokens that its blocks hold.
class Machine {
 public:
  explicit Machine(Scheduler::Spec s)
      : scheduler(s),
        budget_(scheduler.spec().max_step_tokens),
        cache_(static_cast<size_t>(s.pool.blocks * s.pool.block_size)) {}

  void add(int64_t id, std::vector<int32_t> tokens, int64_t news, int priority = 0, uint64_t salt = 0,
           Media media = {}) {
    salt_of[id] = salt;
    media_of[id] = media;
    scheduler.add({.id = id,
                   .prompt = std::move(tokens),
                   .max_new_tokens = news,
                   .priority = priority,
                   .salt = salt,
                   .media = std::move(media)});
  }
  static int32_t next_token(const std::vector<int32_t>& tokens, uint64_t salt, const Media& media) {
    uint64_t h = salt;
    for (size_t i = 0; i < tokens.size(); ++i)
      h = mix(h, seen_at(media, static_cast<int64_t>(i)), static_cast<uint64_t>(tokens[i]));
    return static_cast<int32_t>(h % 1000);
  }
  // False: there was nothing to do.
  bool step() {
    const StepPlan plan = scheduler.next();
    if (plan.items.empty()) return false;
    check(plan);
    for (const auto& item : plan.items) write(item);
    scheduler.advance(plan);
    std::vector<int64_t> ended;
    for (const auto& item : plan.items) {
      const Sequence& s = *item.sequence;
      order.push_back(s.id);
      if (!item.last) continue;
      read(s);
      if (static_cast<int64_t>(s.tokens.size()) < s.limit) {
        const int32_t token = next_token(s.tokens, salt_of.at(s.id), media_of.at(s.id));
        scheduler.append(s.id, token);
        answers[s.id].push_back(token);
      }
      if (static_cast<int64_t>(s.tokens.size()) == s.limit) ended.push_back(s.id);
    }
    for (const int64_t id : ended) {
      cached[id] = scheduler.find(id)->cached;
      finished.push_back(id);
      scheduler.remove(id);
    }
    ++steps;
    return true;
  }
  void run() {
    while (step()) ASSERT_LT(steps, 100000);
  }

  Scheduler scheduler;
  std::map<int64_t, std::vector<int32_t>> answers;
  std::map<int64_t, uint64_t> salt_of;
  std::map<int64_t, Media> media_of;
  std::map<int64_t, int64_t> cached;
  std::vector<int64_t> order, finished;
  int64_t steps = 0, computed = 0;

 private:
  struct Cell {
    int32_t token = -1;
    int64_t position = -1;
    uint64_t salt = 0, seen = 0;
  };
  Cell& cell(const Sequence& s, int64_t i) {
    const auto size = static_cast<int64_t>(scheduler.spec().pool.block_size);
    return cache_[static_cast<size_t>(s.blocks[static_cast<size_t>(i / size)] * size + i % size)];
  }
  void check(const StepPlan& plan) {
    int64_t total = 0;
    std::set<const Sequence*> seen;
    std::set<int32_t> written;
    const auto size = static_cast<int64_t>(scheduler.spec().pool.block_size);
    for (const auto& item : plan.items) {
      ASSERT_TRUE(seen.insert(item.sequence).second);
      ASSERT_GT(item.count, 0);
      total += item.count;
      for (int64_t i = item.begin; i < item.begin + item.count; ++i) {
        ASSERT_LT(i / size, static_cast<int64_t>(item.sequence->blocks.size()));
        const int32_t block = item.sequence->blocks[static_cast<size_t>(i / size)];
        ASSERT_EQ(scheduler.pool().references(block), 1) << "writes into a block that others read";
        ASSERT_TRUE(written.insert(block * static_cast<int32_t>(size) + static_cast<int32_t>(i % size)).second);
      }
    }
    ASSERT_EQ(total, plan.tokens);
    ASSERT_LE(total, budget_);
    ASSERT_LE(scheduler.running(), scheduler.spec().max_sequences);
  }
  void write(const StepPlan::Item& item) {
    computed += item.count;
    for (int64_t i = item.begin; i < item.begin + item.count; ++i)
      cell(*item.sequence, i) = {item.sequence->tokens[static_cast<size_t>(i)], i, salt_of.at(item.sequence->id),
                                 seen_at(item.sequence->media, i)};
  }
  void read(const Sequence& s) {
    for (int64_t i = 0; i < static_cast<int64_t>(s.tokens.size()); ++i) {
      const Cell& c = cell(s, i);
      ASSERT_EQ(c.token, s.tokens[static_cast<size_t>(i)]) << "sequence " << s.id << " position " << i;
      ASSERT_EQ(c.position, i);
      ASSERT_EQ(c.salt, salt_of.at(s.id));
      ASSERT_EQ(c.seen, seen_at(media_of.at(s.id), i)) << "sequence " << s.id << " position " << i << ": other media";
    }
  }
  int64_t budget_;
  std::vector<Cell> cache_;
};

std::vector<int32_t> expected(std::vector<int32_t> tokens, int64_t news, uint64_t salt = 0, const Media& media = {}) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < news; ++i) {
    out.push_back(Machine::next_token(tokens, salt, media));
    tokens.push_back(out.back());
  }
  return out;
}

void expect_idle(const Scheduler& s) {
  EXPECT_EQ(s.running(), 0);
  EXPECT_EQ(s.waiting(), 0);
  EXPECT_EQ(s.pool().in_use(), 0) << "blocks leaked";
}

TEST(Scheduler, OneSequenceToItsEnd) {
  Machine m(spec(8, 4, 5));
  m.add(1, prompt(12), 6);
  m.run();
  EXPECT_EQ(m.answers[1], expected(prompt(12), 6));
  EXPECT_EQ(m.steps, 3 + 5);  // 12 tokens by 5, the last of which gives the first new token
  expect_idle(m.scheduler);
}

TEST(Scheduler, PromptOnly) {
  Machine m(spec(8, 4, 5));
  m.add(1, prompt(7), 0);
  m.run();
  EXPECT_TRUE(m.answers[1].empty());
  EXPECT_EQ(m.finished.size(), 1u);
  expect_idle(m.scheduler);
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Scheduler s(spec(4, 4, 8));
  EXPECT_THROW(s.add({.id = 1, .prompt = {}}), Error);
  EXPECT_THROW(s.add({.id = 1, .prompt = prompt(10), .max_new_tokens = 8}), Error);
  s.add({.id = 1, .prompt = prompt(10), .max_new_tokens = 7});  // 16 in the cache, the 17th is never put there
  EXPECT_THROW(s.add({.id = 1, .prompt = prompt(2)}), Error);
  EXPECT_THROW(s.add({.id = 2, .prompt = prompt(2), .media = {{"cat", 1, 2}}}), Error);
  EXPECT_FALSE(s.remove(9));
}

TEST(Scheduler, DecodesGoOnWhileALongPromptIsRead) {
  Machine m(spec(64, 4, 8));
  m.add(1, prompt(4), 30);
  m.step();
  m.add(2, prompt(100, 500), 2);
  for (int i = 0; i < 10; ++i) {
    const size_t before = m.answers[1].size();
    m.step();
    EXPECT_EQ(m.answers[1].size(), before + 1);
  }
  m.run();
  EXPECT_EQ(m.answers[2], expected(prompt(100, 500), 2));
  expect_idle(m.scheduler);
}

TEST(Scheduler, FirstComeFirstServedWithinAPriority) {
  Machine m(spec(64, 1, 8));
  m.add(1, prompt(4), 2);
  m.add(2, prompt(4, 50), 2);
  m.add(3, prompt(4, 90), 2, 5);
  m.run();
  EXPECT_EQ(m.finished, (std::vector<int64_t>{3, 1, 2}));
}

TEST(Scheduler, PriorityTakesTheSeatOfARunningOne) {
  Machine m(spec(64, 1, 8));
  m.add(1, prompt(4), 20);
  m.step();
  m.add(2, prompt(4, 50), 2, 1);
  m.run();
  EXPECT_EQ(m.finished, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(m.answers[1], expected(prompt(4), 20));
  EXPECT_EQ(m.scheduler.preemptions(), 1);
}

TEST(Scheduler, PrefixesAreSharedAndNotComputedAgain) {
  Machine m(spec(64, 8, 64));
  auto first = prompt(40), second = prompt(40);
  second[38] = 999;
  m.add(1, first, 3);
  m.run();
  const int64_t before = m.computed;
  m.add(2, second, 3);
  m.add(3, first, 3);
  m.add(4, first, 3, 0, /*salt=*/5);
  m.run();
  EXPECT_EQ(m.cached[2], 36);
  EXPECT_EQ(m.cached[3], 36) << "the last token is always computed";
  EXPECT_EQ(m.cached[4], 0) << "another adapter";
  EXPECT_EQ(m.computed - before, (4 + 2) * 2 + 40 + 2);
  for (const int64_t id : {1, 3}) EXPECT_EQ(m.answers[id], expected(first, 3));
  EXPECT_EQ(m.answers[2], expected(second, 3));
  EXPECT_EQ(m.answers[4], expected(first, 3, 5));
}

// The placeholders of an image are the same ids whatever it shows.
TEST(Scheduler, BlocksAreSharedOnlyWhereTheMediaAreEqual) {
  Machine m(spec(128, 8, 64));
  const auto tokens = std::vector<int32_t>(40, 7);
  const std::vector<std::pair<Media, int64_t>> cases = {
      {{{"cat", 6, 20}}, 0},                    // blocks are of 4 tokens: the span begins inside the second
      {{{"cat", 6, 20}}, 36},                   // the same again
      {{{"dog", 6, 20}}, 4},                    // another image
      {{{"cat", 7, 20}}, 4},                    // the same, one token later
      {{{"cat", 6, 21}}, 4},                    // the same, with more tokens
      {{{"cat", 6, 20}, {"dog", 30, 5}}, 28},   // another image behind it
      {{{"cat", 6, 10}, {"cat", 16, 10}}, 4},   // the same ids with twice a smaller one
      {{{"cat", 6, 20}, {"dog", 30, 5}}, 36}};  // the same again, with both
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [media, cached] = cases[i];
    const auto id = static_cast<int64_t>(i);
    m.add(id, tokens, 3, 0, 0, media);
    m.run();
    EXPECT_EQ(m.cached[id], cached) << i;
    EXPECT_EQ(m.answers[id], expected(tokens, 3, 0, media)) << i;
  }
  m.add(100, tokens, 3);
  m.run();
  EXPECT_EQ(m.cached[100], 4) << "without media";
}

// Of models whose tokens see media that stand behind them, too.
TEST(Scheduler, WhatStandsBeforeOtherMediaIsNotShared) {
  Scheduler::Spec with_media = spec(64, 8, 64);
  with_media.media_from_begin = true;
  Machine m(with_media);
  const std::vector<std::pair<Media, int64_t>> cases = {{{{"cat", 30, 1}}, 0},
                                                        {{{"cat", 30, 1}}, 36},
                                                        {{{"dog", 30, 1}}, 0},
                                                        {{{"cat", 30, 1}, {"dog", 35, 1}}, 0},
                                                        {{}, 0},
                                                        {{}, 36}};
  for (size_t i = 0; i < cases.size(); ++i) {
    m.add(static_cast<int64_t>(i), prompt(40), 1, 0, 0, cases[i].first);
    m.run();
    EXPECT_EQ(m.cached[static_cast<int64_t>(i)], cases[i].second) << i;
  }
}

// What is kept of media has its bound; a text that alone has more is read by itself, and others wait in their order.
TEST(Scheduler, NoMoreRunThanWhoseMediaAreKept) {
  Scheduler::Spec few = spec(128, 8, 256);
  few.most_media = 2;
  Machine m(few);
  m.add(1, prompt(8), 3, 0, 0, {{"a", 1, 1}, {"b", 2, 1}, {"c", 3, 1}});
  m.add(2, prompt(8, 100), 3, 0, 0, {{"a", 1, 1}});
  m.add(3, prompt(8, 200), 3, 0, 0, {{"b", 1, 1}});
  m.add(4, prompt(8, 300), 3, 0, 0, {{"c", 1, 1}});
  m.step();
  EXPECT_EQ(m.scheduler.running(), 1);
  while (m.finished.empty()) m.step();
  m.step();
  EXPECT_EQ(m.scheduler.running(), 2);
  m.run();
  EXPECT_EQ(m.finished, (std::vector<int64_t>{1, 2, 3, 4}));
  expect_idle(m.scheduler);
}

// Of models whose images' tokens see each other: an image larger than a step makes one larger step, and so do all of
// them where each image sees the others.
TEST(Scheduler, NoStepEndsWithinMediaThatAreReadAtOnce) {
  for (const auto& [at_once, wanted] :
       {std::pair{MediaAtOnce::Each, std::vector<int64_t>{6, 26, 30, 38, 40}}, {MediaAtOnce::All, {6, 36, 40}}}) {
    Scheduler scheduler(spec(64, 4, 8));
    scheduler.add({.id = 1, .prompt = prompt(40), .max_new_tokens = 1, .media = {{"cat", 6, 20}, {"dog", 30, 6}}});
    std::vector<int64_t> ends;
    for (StepPlan plan = scheduler.next(at_once); !plan.items.empty(); plan = scheduler.next(at_once)) {
      ends.push_back(plan.items[0].begin + plan.items[0].count);
      scheduler.advance(plan);
      if (plan.items[0].last) break;
    }
    EXPECT_EQ(ends, wanted);
  }
}

TEST(Scheduler, TwinsWaitForTheFirstToComputeWhatTheyShare) {
  Machine m(spec(64, 16, 16));
  for (int64_t id = 0; id < 8; ++id) m.add(id, prompt(41), 4);
  m.run();
  EXPECT_EQ(m.computed, 41 + 7 * 1 + 8 * 3);
  for (int64_t id = 0; id < 8; ++id) EXPECT_EQ(m.answers[id], expected(prompt(41), 4));
  expect_idle(m.scheduler);
}

TEST(Scheduler, NobodyWaitsForOtherMedia) {
  Machine m(spec(64, 16, 64));
  for (int64_t id = 0; id < 4; ++id) m.add(id, prompt(13), 2, 0, 0, {{id % 2 ? "cat" : "dog", 1, 12}});
  m.step();
  EXPECT_EQ(m.scheduler.running(), 2) << "one of each; its twin waits";
  m.run();
  EXPECT_EQ(m.computed, 2 * 13 + 2 * 1 + 4 * 1);
  expect_idle(m.scheduler);
}

TEST(Scheduler, ATwinGoesOnWhenTheFirstIsCancelled) {
  Machine m(spec(64, 16, 8));
  m.add(1, prompt(41), 4);
  m.add(2, prompt(41), 4);
  m.step();
  EXPECT_EQ(m.scheduler.running(), 1);
  m.scheduler.remove(1);
  m.run();
  EXPECT_EQ(m.answers[2], expected(prompt(41), 4));
  expect_idle(m.scheduler);
}

TEST(Scheduler, AllPromptRowsWhenTheyAreWanted) {
  Machine m(spec(64, 4, 64));
  m.add(1, prompt(20), 1);
  m.run();
  m.salt_of[2] = 0;
  m.scheduler.add({.id = 2, .prompt = prompt(20), .max_new_tokens = 1, .every_row = true});
  const StepPlan plan = m.scheduler.next();
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].begin, 0);
  EXPECT_EQ(plan.items[0].count, 20);
}

TEST(Scheduler, SuspendedSequencesStartAgain) {
  Machine m(spec(16, 4, 16));
  m.add(1, prompt(10), 8);
  for (int i = 0; i < 4; ++i) m.step();
  m.scheduler.suspend();
  EXPECT_EQ(m.scheduler.pool().in_use(), 0);
  EXPECT_EQ(m.scheduler.pool().findable(), 0);
  m.run();
  EXPECT_EQ(m.answers[1], expected(prompt(10), 8));
  expect_idle(m.scheduler);
}

// Every small machine with every small load: all end, all are right, whatever is preempted on the way.
TEST(Scheduler, ExhaustiveSmall) {
  int64_t preempted = 0;
  for (int32_t blocks = 3; blocks <= 6; ++blocks)
    for (int64_t seats = 1; seats <= 3; ++seats)
      for (int64_t budget = 1; budget <= 7; budget += 2)
        for (int32_t a = 1; a <= 5; ++a)
          for (int32_t b = 1; b <= 5; ++b)
            for (const bool caching : {false, true}) {
              Machine m(spec(blocks, seats, budget, 2, caching));
              m.add(1, prompt(a), 6 - a);
              m.add(2, prompt(b), 6 - b);
              m.add(3, prompt(3, 50), 3);
              m.run();
              if (::testing::Test::HasFatalFailure()) return;
              EXPECT_EQ(m.answers[1], expected(prompt(a), 6 - a));
              EXPECT_EQ(m.answers[2], expected(prompt(b), 6 - b));
              EXPECT_EQ(m.answers[3], expected(prompt(3, 50), 3));
              expect_idle(m.scheduler);
              preempted += m.scheduler.preemptions();
            }
  EXPECT_GT(preempted, 100) << "the small pools must force some out";
}

TEST(Scheduler, RandomTrafficWithCancels) {
  int64_t preempted = 0, hits = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const auto blocks = static_cast<int32_t>(12 + random.below(30));
    Machine m(spec(blocks, 1 + static_cast<int64_t>(random.below(8)), 1 + static_cast<int64_t>(random.below(40)), 4,
                   random.below(4) != 0));
    std::map<int64_t, std::pair<std::vector<int32_t>, int64_t>> asked;
    std::set<int64_t> cancelled;
    for (int64_t id = 0; id < 60;) {
      for (uint64_t n = random.below(4); n > 0 && id < 60; --n, ++id) {
        auto tokens = prompt(static_cast<int32_t>(1 + random.below(24)), static_cast<int32_t>(random.below(2)));
        if (random.below(2)) tokens.back() = static_cast<int32_t>(500 + random.below(50));
        const auto news = static_cast<int64_t>(random.below(20));
        Media media;  // on placeholders of equal ids, so that only their digests tell them apart
        if (const auto length = static_cast<int64_t>(tokens.size()); length > 6 && random.below(2)) {
          media = {{random.below(2) ? "cat" : "dog", 2, length - 4}};
          std::fill(tokens.begin() + 2, tokens.end() - 2, 3);
        }
        asked[id] = {tokens, news};
        m.add(id, tokens, news, static_cast<int>(random.below(3)), random.below(2), media);
      }
      if (random.below(6) == 0) {
        const auto victim = static_cast<int64_t>(random.below(60));
        if (m.scheduler.remove(victim)) cancelled.insert(victim);
      }
      if (random.below(40) == 0) m.scheduler.suspend();
      m.step();
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    }
    m.run();
    if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    for (const auto& [id, wanted] : asked)
      if (!cancelled.count(id)) {
        ASSERT_EQ(m.answers[id], expected(wanted.first, wanted.second, m.salt_of[id], m.media_of[id]))
            << "seed " << seed << " id " << id;
      }
    EXPECT_EQ(m.finished.size() + cancelled.size(), asked.size());
    expect_idle(m.scheduler);
    preempted += m.scheduler.preemptions();
    hits += m.scheduler.cached_tokens();
  }
  EXPECT_GT(preempted, 50);
  EXPECT_GT(hits, 500);
}

// Keys of short texts are no keys of long ones: a text that outgrows them is read anew, and shares blocks with long
// ones alone.
TEST(Scheduler, ATextThatOutgrowsTheShortContextIsReadAnew) {
  Scheduler::Spec s = spec(16, 2, 64);
  s.short_context = 6;
  Scheduler scheduler(s);
  scheduler.add({.id = 1, .prompt = prompt(4), .max_new_tokens = 5});
  const auto step = [&] {
    const StepPlan plan = scheduler.next();
    EXPECT_EQ(plan.items.size(), 1u);
    scheduler.advance(plan);
    return std::pair(plan.items[0].begin, plan.items[0].count);
  };
  EXPECT_EQ(step(), std::pair(int64_t{0}, int64_t{4}));
  EXPECT_EQ(scheduler.find(1)->read_as, 4);
  scheduler.append(1, 50);
  EXPECT_EQ(step(), std::pair(int64_t{4}, int64_t{1}));
  scheduler.append(1, 51);
  EXPECT_EQ(step(), std::pair(int64_t{5}, int64_t{1}));
  scheduler.append(1, 52);  // the seventh
  EXPECT_EQ(step(), std::pair(int64_t{0}, int64_t{7}));
  EXPECT_EQ(scheduler.find(1)->read_as, 7);
  scheduler.append(1, 53);
  EXPECT_EQ(step(), std::pair(int64_t{7}, int64_t{1}));
}

}  // namespace
}  // namespace apus
