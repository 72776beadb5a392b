// SPDX-License-Identifier: Apache-2.0
// The engine with adapters: tokens go through their own, and one in use leaves after its last request.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

TEST(Engine, TokensGoThroughTheirAdapters) {
  FakeModel model;
  std::map<std::string, int64_t> rows, head_rows;
  std::set<std::string> attached;
  bool routed = true;
  model.on_step = [&](const Step& s) {
    routed &= s.routed;
    for (const auto& a : s.adapters) {
      rows[a.name] += a.rows.numel();
      EXPECT_TRUE(attached.count(a.name));
    }
  };
  model.on_head = [&](const at::Tensor& x, const Step& s) {
    for (const auto& a : s.adapters) {
      head_rows[a.name] += a.rows.numel();
      EXPECT_LT(a.rows.max().item<int64_t>(), x.size(0));
    }
  };
  Engine engine(model, kOptions, spec(64, 64),
                {.load =
                     [&](const std::string& name, const std::string& dir) {
                       require(dir != "missing", Fault::Io, "missing");
                       attached.insert(name);
                     },
                 .unload = [&](const std::string& name) { attached.erase(name); }});
  EXPECT_THROW(engine.load_adapter("a", "missing"), Error);
  engine.load_adapter("a", "dir-a");
  engine.load_adapter("b", "dir-b");
  EXPECT_THROW(engine.load_adapter("a", "dir-a"), Error);
  EXPECT_EQ(engine.adapters(), (std::vector<std::string>{"a", "b"}));
  std::vector<EngineRequest> requests;
  for (const char* name : {"a", "b", "", "a"})
    requests.push_back({.prompt = prompt(7, 10), .sampling = greedy(3), .adapter = name});
  for (const auto& r : generate(engine, std::move(requests))) EXPECT_EQ(r.ids(), answer(prompt(7, 10), 3));
  EXPECT_TRUE(routed);
  EXPECT_EQ(rows, (std::map<std::string, int64_t>{{"a", 10 + 2 + 2 + 2}, {"b", 10 + 2}}))
      << "the second \"a\" shares the first one's prefix";
  EXPECT_EQ(head_rows, (std::map<std::string, int64_t>{{"a", 6}, {"b", 3}}));
  engine.unload_adapter("a");
  EXPECT_FALSE(attached.count("a"));
  EXPECT_THROW(engine.submit({.prompt = {1}, .adapter = "a"}), Error);
  EXPECT_THROW(engine.unload_adapter("a"), Error);
}

TEST(Engine, AnAdapterInUseLeavesAfterItsLastRequest) {
  FakeModel model;
  std::atomic<bool> gone{false}, over{false};
  Engine engine(model, kOptions, spec(64, 64),
                {.load = [](auto&, auto&) {},
                 .unload =
                     [&](auto&) {
                       gone = true;
                       EXPECT_TRUE(over);
                     }});
  engine.load_adapter("a", "");
  engine.submit({.prompt = prompt(1, 5), .sampling = greedy(100), .adapter = "a", .sink = [&](const EngineEvent& e) {
                   EXPECT_FALSE(gone);
                   if (e.finish == Finish::Length) over = true;
                 }});
  engine.unload_adapter("a");
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace apus
