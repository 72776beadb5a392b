// SPDX-License-Identifier: Apache-2.0
// --device_map and --max_memory as text, and the placement they lead to: sizes in, places out.
#include "parallel/placement/placement.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using Places = std::vector<int>;

// A tower, an embedding of 20, `layers` of 10 (cache: 1 a token), a norm of 1, a head of 20 that may be tied.
PlacementRequest model(int layers, std::vector<int64_t> rooms, const std::string& how, bool tied = true,
                       bool tower = false) {
  PlacementRequest ask;
  ask.parts.push_back({.name = "model.embed_tokens", .weights = 20});
  if (tower) ask.parts.push_back({.name = "visual", .weights = 15, .follows = 0});
  for (int i = 0; i < layers; ++i) ask.parts.push_back({.name = str("model.layers.", i), .weights = 10, .cache = 1});
  ask.parts.push_back({.name = "model.norm", .weights = 1});
  ask.parts.push_back({.name = "lm_head", .weights = 20, .follows = tied ? 0 : -1, .may_leave = tied});
  for (size_t i = 0; i < rooms.size(); ++i)
    ask.rooms.push_back({.device = str("npu:", i), .total = rooms[i], .free = rooms[i]});
  ask.map = how.find('{') == std::string::npos ? DeviceMap{how, {}} : parse_device_map(how);
  ask.kind = "npu", ask.share = 1;
  return ask;
}

std::string refusal(const PlacementRequest& ask, Fault fault) {
  return test::refusal(fault, [&] { place(ask); });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define EXPECT_SAYS(text, part) EXPECT_TRUE(has(text, part)) << text

TEST(Placement, AutoTakesAsFewDevicesAsSufficeAndFillsThemAlike) {
  EXPECT_EQ(place(model(4, {100, 100}, "auto")).room, (Places{0, 0, 0, 0, 0, 0, 0})) << "61 on one device";
  EXPECT_EQ(place(model(4, {40, 40, 40}, "auto")).room, (Places{0, 0, 1, 1, 1, 1, 0}))
      << "a tied head lies with its weight";
  EXPECT_EQ(place(model(4, {50, 50}, "auto", false)).room, (Places{0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(place(model(4, {10, 100, 70}, "auto")).room, (Places{1, 1, 1, 1, 1, 1, 1})) << "where there is most room";
  EXPECT_EQ(place(model(4, {40, 5, 40}, "auto")).room, (Places{0, 0, 2, 2, 2, 2, 0}))
      << "a device that others fill is left out";
}

TEST(Placement, BalancedTakesAllDevicesAndSequentialFillsOneAfterTheOther) {
  EXPECT_EQ(place(model(6, {100, 100, 100, 100}, "balanced")).room, (Places{0, 1, 1, 2, 2, 3, 3, 3, 0}));
  EXPECT_EQ(place(model(4, {40, 60}, "balanced")).room, (Places{0, 1, 1, 1, 1, 1, 0})) << "by free memory";
  EXPECT_EQ(place(model(4, {45, 100, 100}, "sequential")).room, (Places{0, 0, 0, 1, 1, 1, 0}));
  EXPECT_EQ(place(model(4, {100, 40, 40}, "balanced_low_0")).room, (Places{1, 1, 2, 2, 2, 2, 1}))
      << "the first is not needed";
  EXPECT_EQ(place(model(4, {100, 40}, "balanced_low_0")).room, (Places{0, 0, 1, 1, 1, 1, 0}))
      << "the first holds what is over";
}

TEST(Placement, EveryPartOnceInOrderAndWithinEveryRoom) {
  for (const char* how : {"auto", "balanced", "sequential", "balanced_low_0"})
    for (int layers = 1; layers < 30; layers += 3)
      for (const std::vector<int64_t>& rooms :
           std::vector<std::vector<int64_t>>{{90, 90, 90, 90}, {200, 40, 90}, {30, 300}, {500}}) {
        PlacementRequest ask = model(layers, rooms, how, layers % 2 == 0, layers % 3 == 0);
        ask.tokens = 5, ask.least_tokens = 1;
        Placement p;
        try {
          p = place(ask);
        } catch (const Error&) {
          continue;
        }
        ASSERT_EQ(p.room.size(), ask.parts.size());
        std::vector<int64_t> load(rooms.size(), 0);
        int last = 0;
        for (size_t i = 0; i < ask.parts.size(); ++i) {
          const Part& part = ask.parts[i];
          const auto room = static_cast<size_t>(p.room[i]);
          load[room] += (part.may_leave ? 0 : part.weights) + part.cache * p.tokens;
          const int leader = part.follows < 0 ? p.room[i] : p.room[static_cast<size_t>(part.follows)];
          EXPECT_EQ(p.room[i], leader);
          EXPECT_TRUE(part.follows >= 0 || p.room[i] >= last) << "out of order";
          if (part.follows < 0) last = p.room[i];
        }
        for (size_t r = 0; r < rooms.size(); ++r) {
          EXPECT_LE(load[r], rooms[r]) << how;
          EXPECT_EQ(load[r], p.weights[r] + p.cache[r] * p.tokens);
        }
      }
}

TEST(Placement, TowersLieWithTheEmbeddingTheyFeed) {
  EXPECT_EQ(place(model(4, {40, 50}, "auto", true, true)).room, (Places{0, 0, 1, 1, 1, 1, 1, 0}));
  EXPECT_SAYS(refusal(model(4, {200, 200}, R"({"": 0, "visual": 1})", true, true), Fault::Usage),
              "visual runs together with model.embed_tokens");
}

TEST(Placement, RoomForTheCacheGoesWithItsLayers) {
  PlacementRequest ask = model(4, {70, 70}, "auto");
  ask.tokens = 2;
  EXPECT_EQ(place(ask).used().size(), 1u) << "61 and 8";
  ask.tokens = 3;
  EXPECT_EQ(place(ask).room, (Places{0, 0, 1, 1, 1, 1, 0})) << "61 and 12 do not fit on one";
  ask.tokens = 1000, ask.least_tokens = 1;
  const Placement less = place(ask);
  EXPECT_LT(less.tokens, 1000) << "as much as there is room for";
  EXPECT_GE(less.tokens, 7);
  ask.least_tokens = 1000, ask.cache_flag = "--kv_cache_gb";
  EXPECT_SAYS(refusal(ask, Fault::Device), "lower --kv_cache_gb: the weights alone fit");
}

TEST(Placement, OnlyAShareOfEachDeviceAndNoMoreThanItsLimit) {
  PlacementRequest ask = model(4, {100, 100}, "auto");
  ask.share = 0.5;
  ask.rooms[0].free = 90;
  EXPECT_EQ(ask.room(0), 40);
  EXPECT_EQ(ask.room(1), 50);
  ask.rooms[1].limit = 20;
  EXPECT_EQ(ask.room(1), 20);
  ask.share_flag = "--memory_utilization";
  EXPECT_SAYS(refusal(ask, Fault::Device), "npu:0 40 B, npu:1 20 B");
}

TEST(Placement, AMapIsObeyed) {
  EXPECT_EQ(place(model(4, {100, 100}, R"({"": 1, "model.layers.0": 0, "model.layers.1": "npu:0"})")).room,
            (Places{1, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(place(model(2, {100, 100}, R"({"model": 0, "lm_head": 1})")).room, (Places{0, 0, 0, 0, 1}))
      << "a tied head may leave";
  EXPECT_EQ(place(model(2, {100, 100}, R"({"model": 0, "lm_head": 1})")).weights[1], 20) << "then it is a copy";
  EXPECT_EQ(place(model(2, {100, 100}, R"({"model": 0})")).room, (Places{0, 0, 0, 0, 0}))
      << "or it lies with its weight";
  EXPECT_EQ(
      place(model(1, {100, 100}, R"({"model.layers": 1, "": 0, "model.rotary_emb": 0, "model.layers.0.mlp": 1})")).room,
      (Places{0, 1, 0, 0}));
}

TEST(Placement, MapsThatDoNotBelongToTheModelOrTheDevices) {
  const auto said = [](const std::string& map) { return refusal(model(12, {500, 500}, map, false), Fault::Usage); };
  EXPECT_SAYS(said(R"({"": 0, "model.layer.3": 1})"), "no module 'model.layer.3'; did you mean model.layers.3?");
  EXPECT_SAYS(said(R"({"": 0, "model.layer.3": 1})"),
              "It has model.embed_tokens, model.layers.0-11, model.norm, lm_head");
  EXPECT_SAYS(said(R"({"": 0, "model.layers.30": 1})"), "no module 'model.layers.30'");
  EXPECT_SAYS(said(R"({"model.layers": 0, "model.embed_tokens": 0})"), "gives no device for model.norm, lm_head");
  EXPECT_SAYS(said(R"({"": 0, "lm_head": 7})"), "'lm_head' is on npu:7, which is not there; there are npu:0, npu:1");
  EXPECT_SAYS(said(R"({"": 0, "lm_head": "cuda:0"})"), "cuda:0, which is not there");
  EXPECT_SAYS(said(R"({"": 0, "model.layers.2.mlp": 1})"), "divides model.layers.2");
}

TEST(Placement, WhatDoesNotFitWhereAndTheCheapestRemedy) {
  const std::string map = R"({"": 0, "model.layers": 1})";
  PlacementRequest ask = model(4, {50, 30, 50}, map);
  ask.least_tokens = 2;
  EXPECT_SAYS(
      refusal(ask, Fault::Device),
      "npu:1 cannot hold model.layers.0-3: 40 B of weights and 8 B of cache for 2 tokens, it has room for 30 B");
  EXPECT_SAYS(refusal(ask, Fault::Device), "--device_map auto places it on 2 devices");

  ask = model(4, {30, 30}, "auto");
  EXPECT_SAYS(refusal(ask, Fault::Device),
              "61 B of weights, and room for 60 B (npu:0 30 B, npu:1 30 B); 1 B are missing");
  EXPECT_SAYS(refusal(ask, Fault::Device), "What helps: more devices");
  ask.float32 = true;
  EXPECT_SAYS(refusal(ask, Fault::Device), "--torch_dtype bfloat16");
  ask.share = 0.9, ask.share_flag = "--memory_utilization";
  for (Room& room : ask.rooms) room.total = room.free = 32;
  EXPECT_SAYS(refusal(ask, Fault::Device), "--memory_utilization 0.97");
  ask.share = 1;
  for (Room& room : ask.rooms) room.total = room.free = 100, room.limit = 30;
  EXPECT_SAYS(refusal(ask, Fault::Device), "raise --max_memory");

  ask = model(1, {15, 15, 15}, "auto");
  EXPECT_SAYS(refusal(ask, Fault::Device), "the largest, model.embed_tokens, takes 20 B");
}

TEST(Placement, TheProcessorTakesOnlyWhatIsOver) {
  const int64_t mib = 1 << 20;
  PlacementRequest ask = model(4, {40 * mib, 40 * mib}, "auto");
  for (Part& p : ask.parts) p.weights *= 2 * mib;
  ask.spare_host = Room{.device = "cpu", .total = 1000 * mib, .free = 1000 * mib, .host = true};
  EXPECT_SAYS(refusal(ask, Fault::Device), R"(--max_memory '{0: "40MiB", 1: "40MiB", "cpu": "42MiB"}')");
  ask.rooms.push_back(*ask.spare_host);
  EXPECT_EQ(place(ask).room, (Places{0, 1, 1, 2, 2, 2, 0}));
  ask.rooms[0].total = ask.rooms[0].free = 200 * mib;
  EXPECT_EQ(place(ask).used(), (Places{0}));
}

TEST(Placement, NamesInARow) {
  EXPECT_EQ(name_ranges({"a.0", "a.1", "a.2", "b.0", "b.2", "norm"}), "a.0-2, b.0, b.2, norm");
  EXPECT_EQ(name_ranges({}), "");
}

TEST(DeviceMap, InAllTheWaysPeopleWriteIt) {
  EXPECT_TRUE(parse_device_map(" ").strategy.empty());
  for (const char* how : {"auto", "balanced", "balanced_low_0", "sequential"})
    EXPECT_EQ(parse_device_map(how).strategy, how);
  using Entries = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(parse_device_map("cpu").entries, (Entries{{"", "cpu"}}));
  EXPECT_EQ(parse_device_map("npu:3").entries, (Entries{{"", "npu:3"}}));
  EXPECT_EQ(parse_device_map("2").entries, (Entries{{"", "2"}}));
  const Entries two = {{"model.embed_tokens", "0"}, {"model.layers", "npu:1"}};
  EXPECT_EQ(parse_device_map(R"({"model.embed_tokens": 0, "model.layers": "npu:1"})").entries, two);
  EXPECT_EQ(parse_device_map("{'model.embed_tokens': 0, 'model.layers': 'npu:1',}").entries, two)
      << "as Python writes it";
  const std::string file = testing::TempDir() + "map.json";
  write_file_atomic(file, R"({"": 1})");
  EXPECT_EQ(parse_device_map(file).entries, (Entries{{"", "1"}}));
  EXPECT_EQ(full_device_name("3", "npu"), "npu:3");
  EXPECT_EQ(full_device_name("cpu", "npu"), "cpu");
}

TEST(DeviceMap, WhatIsNoneIsRefused) {
  for (const char* text : {"autto", "disk", "{", "{}", "[0]", R"({"model": "disk"})", R"({"model": -1})",
                           R"({"model": 0.5})", R"({"model": null})", R"({"model": "npu:x"})", "no-such-file.json"}) {
    SCOPED_TRACE(text);
    test::refusal(Fault::Usage, [&] { parse_device_map(text); });
  }
}

TEST(DeviceMap, MaxMemory) {
  using Limits = std::map<std::string, int64_t>;
  EXPECT_EQ(parse_max_memory(""), Limits{});
  EXPECT_EQ(parse_max_memory(R"({0: "20GB", 1: "10GiB", "cpu": 5000})"),
            (Limits{{"0", 20000000000}, {"1", int64_t{10} << 30}, {"cpu", 5000}}));
  EXPECT_EQ(parse_max_memory(R"({"npu:1": 0})"), (Limits{{"npu:1", 0}}));
  for (const char* text : {"20GB", "{}", R"({"card": "20GB", "0 ": 1})", R"({0: "much"})", R"({0: -5})"})
    EXPECT_THROW(parse_max_memory(text), Error) << text;
}

}  // namespace
}  // namespace apus
