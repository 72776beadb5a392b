// SPDX-License-Identifier: Apache-2.0
// What an engine's rank tells the ranks with the other parts of its model, as words.
#include "engine/step_line.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace apus {
namespace {

Order step_order() {
  return {.kind = Order::Kind::Step,
          .step = {.id = {5, 6, 7},
                   .slot = {16, 17, 48},
                   .seat = {},
                   .begin = {0, 3},
                   .length = {2, 1},
                   .prompt = {2, 3},
                   .blocks = {1, 0, 3, 2},
                   .routed = true,
                   .routes = {{"a longer name of an adapter", {0, 1}}, {"b", {2}}}}};
}

TEST(StepLine, OrdersArriveAsTheyWereGiven) {
  const Order step = decode_order(encode_order(step_order()));
  const StepNumbers &sent = step_order().step, &came = step.step;
  EXPECT_EQ(step.kind, Order::Kind::Step);
  EXPECT_EQ(came.id, sent.id);
  EXPECT_EQ(came.slot, sent.slot);
  EXPECT_EQ(came.seat, sent.seat);
  EXPECT_EQ(came.begin, sent.begin);
  EXPECT_EQ(came.length, sent.length);
  EXPECT_EQ(came.prompt, sent.prompt);
  EXPECT_EQ(came.blocks, sent.blocks);
  EXPECT_TRUE(came.routed);
  EXPECT_EQ(came.routes, sent.routes);
  const Order head = decode_order(
      encode_order({.kind = Order::Kind::Head, .rows = {2, 4}, .routed = true, .routes = {{"adapter", {1}}}}));
  EXPECT_EQ(head.rows, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(head.routes, (AdapterRoutes{{"adapter", {1}}}));
  const Order load = decode_order(
      encode_order({.kind = Order::Kind::LoadAdapter, .adapter = "poems", .folder = "/a/folder/of/some/length"}));
  EXPECT_EQ(load.adapter, "poems");
  EXPECT_EQ(load.folder, "/a/folder/of/some/length");
  EXPECT_EQ(decode_order(encode_order({.kind = Order::Kind::Sleep, .level = 2})).level, 2);
}

TEST(StepLine, DamagedOrdersAreRefused) {
  const std::vector<int64_t> whole = encode_order(step_order());
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(decode_order({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}), Error) << length;
  std::vector<int64_t> longer = whole;
  longer.push_back(0);
  EXPECT_THROW(decode_order(longer), Error);
  EXPECT_THROW(decode_order({99}), Error);
  EXPECT_THROW(decode_order({static_cast<int64_t>(Order::Kind::Step), -1}), Error);
  EXPECT_THROW(decode_order({static_cast<int64_t>(Order::Kind::Step), int64_t{1} << 60}), Error);
}

}  // namespace
}  // namespace apus
