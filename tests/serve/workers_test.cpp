// SPDX-License-Identifier: Apache-2.0
#include "serve/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/eventually.h"

namespace apus {
namespace {

TEST(Workers, SerialWorkKeepsItsOrder) {
  const auto workers = std::make_shared<Workers>(2);
  const auto serial = std::make_shared<Serial>(workers);
  std::vector<int> seen;
  std::atomic<bool> over{false};
  for (int i = 0; i < 100; ++i) serial->post([&seen, i] { seen.push_back(i); });
  serial->post([&over] { over = true; });
  ASSERT_TRUE(test::eventually([&] { return over.load(); }));
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

// Work that holds the owner of its own queue would otherwise never be freed.
TEST(Workers, StoppingDropsWhatWaitsInEverySerial) {
  struct Owner {
    std::shared_ptr<Serial> serial;
  };
  const auto workers = std::make_shared<Workers>(1);
  std::atomic<bool> begun{false}, go{false};
  workers->post([&] {
    begun = true;
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const auto before = std::make_shared<Owner>(Owner{std::make_shared<Serial>(workers)});
  before->serial->post([before] { FAIL() << "dropped work ran"; });
  ASSERT_TRUE(test::eventually([&] { return begun.load(); }));
  std::thread stopper([&] { workers->stop(); });
  EXPECT_TRUE(test::eventually([&] { return before.use_count() == 1; }));
  go = true;
  stopper.join();
  const auto after = std::make_shared<Owner>(Owner{std::make_shared<Serial>(workers)});
  after->serial->post([after] { FAIL() << "work ran after the end"; });
  EXPECT_EQ(after.use_count(), 1);
}

TEST(Workers, WorkMayHoldTheLastOwner) {
  std::atomic<bool> go{false}, ended{false};
  std::weak_ptr<Workers> watched;
  {
    const auto workers = std::make_shared<Workers>(1);
    watched = workers;
    workers->post([&, workers] {
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ended = true;
    });
  }
  go = true;
  EXPECT_TRUE(test::eventually([&] { return ended && watched.expired(); }));
}

}  // namespace
}  // namespace apus
