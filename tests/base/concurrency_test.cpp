// SPDX-License-Identifier: Apache-2.0
// Queues, running ahead, random numbers, the stop flag.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/queue.h"
#include "base/random.h"
#include "base/signals.h"

namespace apus {
namespace {

TEST(Queue, BoundedAndInOrder) {
  BoundedQueue<int> queue(2);
  std::atomic<int> pushed{0};
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) queue.push(i), ++pushed;
    queue.close();
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(queue.pop(), i);
    EXPECT_LE(pushed.load(), i + 4);  // taken, two in the queue, one being counted
  }
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_FALSE(queue.push(1));
  producer.join();
}

TEST(RunAhead, ItemsThenEnd) {
  int next = 0;
  RunAhead<int> ahead(3, [&]() -> std::optional<int> { return next < 50 ? std::optional<int>(next++) : std::nullopt; });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ahead.next(), i);
  EXPECT_EQ(ahead.next(), std::nullopt);
  EXPECT_EQ(ahead.next(), std::nullopt);
}

TEST(RunAhead, FailuresArriveInTheirPlace) {
  int next = 0;
  RunAhead<int> ahead(8, [&]() -> std::optional<int> {
    require(next < 3, Fault::Data, "row three");
    return next++;
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ahead.next(), i);
  EXPECT_THROW(ahead.next(), Error);
}

TEST(RunAhead, AnUnfinishedOneEndsAtOnce) {
  RunAhead<int> ahead(2, []() -> std::optional<int> { return 1; });
  EXPECT_EQ(ahead.next(), 1);
}

TEST(RandomNumbers, FunctionsOfSeedStreamAndCounter) {
  EXPECT_EQ(mix(1, 2, 3), mix(1, 2, 3));
  EXPECT_EQ(mix(42, 0, 0), 0xF5F305129C198E00ull) << "runs must stay reproducible across versions";
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t stream = 0; stream < 10; ++stream) {
      for (uint64_t counter = 0; counter < 10; ++counter) seen.insert(mix(seed, stream, counter));
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
  Random whole(7, "data.shuffle");
  for (int i = 0; i < 5; ++i) whole.bits();
  Random resumed(7, stream_named("data.shuffle"), whole.counter());
  EXPECT_EQ(whole.bits(), resumed.bits());
  EXPECT_NE(stream_named("a"), stream_named("b"));
}

TEST(RandomNumbers, EveryBitFlipsHalfTheTime) {
  // Changing one bit of an input changes each output bit with probability one half.
  for (int input = 0; input < 192; ++input) {
    int flips = 0;
    for (uint64_t i = 0; i < 64; ++i) {
      std::array<uint64_t, 3> words{i * 7, i * 13, i};
      const uint64_t before = mix(words[0], words[1], words[2]);
      words[static_cast<size_t>(input / 64)] ^= uint64_t{1} << (input % 64);
      flips += std::popcount(before ^ mix(words[0], words[1], words[2]));
    }
    EXPECT_NEAR(flips, 64 * 32, 6 * 32) << input;  // six standard deviations of 4096 fair coins
  }
}

TEST(RandomNumbers, Distributions) {
  Random random(3);
  double sum = 0, squares = 0;
  std::array<int, 6> dice{};
  for (int i = 0; i < 60'000; ++i) {
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    ++dice[random.below(6)];
    const double n = random.normal();
    sum += n, squares += n * n;
  }
  for (const int count : dice) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_NEAR(sum / 60'000, 0, 0.02);
  EXPECT_NEAR(squares / 60'000, 1, 0.03);
  std::vector<int> items(100);
  std::iota(items.begin(), items.end(), 0);
  random.shuffle(std::span(items));
  EXPECT_FALSE(std::is_sorted(items.begin(), items.end()));
  std::sort(items.begin(), items.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(items[static_cast<size_t>(i)], i);
}

TEST(StopFlags, RememberASignalAndGiveHandlersBack) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  {
    StopFlag stop;
    EXPECT_FALSE(stop.raised());
    EXPECT_THROW(StopFlag(), Error);
    ::raise(SIGTERM);
    EXPECT_TRUE(stop.raised());
    EXPECT_EQ(stop.signal(), SIGTERM);
    EXPECT_THROW(stop.throw_if_raised(), Interrupted);
  }
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(StopFlags, OneWishMayComeTwiceAtOnce) {
  StopFlag stop;
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);  // as from a scheduler and from the launcher
  EXPECT_EQ(stop.signal(), SIGUSR1);
}

TEST(StopFlags, ALaterSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopFlag stop;
        ::raise(SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        ::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace apus
