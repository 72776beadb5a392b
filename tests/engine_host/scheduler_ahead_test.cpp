// SPDX-License-Identifier: Apache-2.0
// What the scheduler plans before the tokens of the step under way are known.
#include <gtest/gtest.h>

#include "engine/schedule/scheduler.h"

namespace apus {
namespace {

class SchedulerAhead : public ::testing::Test {
 protected:
  static Scheduler::Spec small(int32_t blocks, int64_t sequences) {
    return {
        .pool = {.blocks = blocks, .block_size = 4, .secret = 7}, .max_sequences = sequences, .max_step_tokens = 16};
  }
  static void add(Scheduler& s, int64_t id, int64_t length, int64_t news) {
    std::vector<int32_t> tokens(static_cast<size_t>(length), static_cast<int32_t>(id));
    s.add({.id = id, .prompt = std::move(tokens), .max_new_tokens = news});
  }
  static void append(Scheduler& s, const StepPlan& plan) {
    for (const auto& item : plan.items)
      if (item.last) s.append(item.sequence->id, 9);
  }
  // Asked for, its tokens not yet known.
  static StepPlan fly(Scheduler& s) {
    const StepPlan plan = s.next();
    s.advance(plan);
    return plan;
  }
};

TEST_F(SchedulerAhead, IsTheStepThatWillCome) {
  Scheduler s(small(32, 4));
  add(s, 1, 5, 10), add(s, 2, 7, 10);
  StepPlan under_way = fly(s);
  for (int i = 0; i < 5; ++i) {
    const StepPlan ahead = s.ahead();
    append(s, under_way);
    const StepPlan then = s.next();
    ASSERT_EQ(ahead.items.size(), 2u);
    for (size_t n = 0; n < 2; ++n) {
      EXPECT_EQ(ahead.items[n].sequence, then.items[n].sequence);
      EXPECT_EQ(ahead.items[n].begin, then.items[n].begin);
      EXPECT_EQ(ahead.items[n].count, 1);
      EXPECT_TRUE(ahead.items[n].last);
      EXPECT_GE(std::ssize(ahead.items[n].sequence->blocks) * 4, ahead.items[n].begin + 1) << "where it is put";
    }
    EXPECT_EQ(ahead.tokens, 2);
    s.advance(ahead);
    under_way = ahead;
  }
}

TEST_F(SchedulerAhead, WhoHasItsLengthByThenIsNotInIt) {
  Scheduler s(small(32, 4));
  add(s, 1, 5, 2), add(s, 2, 5, 3);
  append(s, fly(s));
  fly(s);  // the last token of the first one
  const StepPlan plan = s.ahead();
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].sequence->id, 2);
}

TEST_F(SchedulerAhead, NothingWhileAPromptIsRead) {
  Scheduler s(small(32, 4));
  add(s, 1, 5, 10), add(s, 2, 40, 10);
  fly(s);
  EXPECT_TRUE(s.ahead().items.empty());
}

TEST_F(SchedulerAhead, NothingWhereSomebodyMayComeIn) {
  Scheduler s(small(32, 2));
  add(s, 1, 5, 10), add(s, 2, 5, 3);
  append(s, fly(s));
  fly(s);
  EXPECT_FALSE(s.ahead().items.empty());
  add(s, 3, 5, 10);
  EXPECT_TRUE(s.ahead().items.empty()) << "nobody has looked at it yet";
  append(s, StepPlan{{{s.find(1), 5, 1, true}, {s.find(2), 5, 1, true}}, 2});
  fly(s);
  EXPECT_TRUE(s.ahead().items.empty()) << "one ends by its length, and makes room";
  s.append(1, 9), s.append(2, 9), s.remove(2);
  append(s, fly(s));
  fly(s);
  add(s, 4, 5, 10);
  s.append(1, 9), s.append(3, 9);
  fly(s);
  EXPECT_EQ(s.ahead().items.size(), 2u) << "both seats are taken";
  s.remove(3);
  EXPECT_TRUE(s.ahead().items.empty()) << "one is free";
}

TEST_F(SchedulerAhead, WhoWaitsForBlocksHoldsNobodyUp) {
  Scheduler s(small(9, 4));
  add(s, 1, 6, 18), add(s, 2, 20, 4);
  append(s, fly(s));  // of the first, and a part of the second
  append(s, fly(s));
  add(s, 3, 16, 4);
  fly(s);
  ASSERT_EQ(s.waiting(), 1);
  EXPECT_EQ(s.ahead().items.size(), 2u);
}

TEST_F(SchedulerAhead, NothingWhereABlockLacks) {
  Scheduler s(small(4, 4));
  add(s, 1, 7, 9), add(s, 2, 6, 3);
  append(s, fly(s));
  fly(s);
  EXPECT_TRUE(s.ahead().items.empty()) << "both have two blocks, and the first one's are full";
}

TEST_F(SchedulerAhead, NothingWhereATextOutgrowsItsShortContext) {
  Scheduler::Spec spec = small(32, 4);
  spec.short_context = 8;
  Scheduler s(spec);
  add(s, 1, 6, 10);
  append(s, fly(s));
  fly(s);
  EXPECT_FALSE(s.ahead().items.empty()) << "the eighth token";
  s.append(1, 9);
  fly(s);
  EXPECT_TRUE(s.ahead().items.empty()) << "with the ninth it is read anew";
}

}  // namespace
}  // namespace apus
