// SPDX-License-Identifier: Apache-2.0
// The engine over a model that somebody else trains: it sleeps while the model learns, and wakes with new weights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

// The address space that this process has from the system, in MiB.
int64_t mapped_mib() {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages;
  return (pages * ::sysconf(_SC_PAGESIZE)) >> 20;
}

TEST(EngineRollout, SleepGivesTheCacheBackEachTime) {
  FakeModel model(/*head_dim=*/8192);
  EngineSpec large = spec();
  large.cache_bytes = int64_t{512} << 20;  // blocks of 4 tokens: 2 * 4 * 8192 floats are a quarter of a MiB
  large.max_sequences = 32;
  Engine engine(model, kOptions, large, {.load = [](auto&, auto&) {}, .unload = [](auto&) {}});
  engine.load_adapter("reference", "");
  ASSERT_EQ(engine.cache_tokens(), 2048 * 4);
  const auto p = prompt(1, 40);
  for (int turn = 0; turn < 4; ++turn) {
    const auto r = generate(engine, {p, prompt(2, 7)}, greedy(20));
    EXPECT_EQ(r[0].ids(), answer(p, 20)) << turn;
    EXPECT_EQ(r[1].ids(), answer(prompt(2, 7), 20)) << turn;
    EXPECT_EQ(r[0].cached_tokens, 0) << "a new cache, turn " << turn;
    const int64_t awake = mapped_mib();
    engine.sleep();
    EXPECT_GE(awake - mapped_mib(), 500) << turn;
    EXPECT_EQ(engine.adapters(), std::vector<std::string>{"reference"});
    engine.wake();
    EXPECT_GE(mapped_mib(), awake - 12) << turn;
  }
  EXPECT_EQ(generate(engine, {{.prompt = p, .sampling = greedy(3), .adapter = "reference"}})[0].ids(), answer(p, 3));
}

TEST(EngineRollout, ChangedWeightsForgetThePrefixes) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  const auto p = prompt(5, 41);
  const auto ask = [&](int64_t version, int64_t cached) {
    const auto r = generate(engine, {p}, greedy(6));
    EXPECT_EQ(r[0].ids(), answer(p, 6, model.weights)) << version;
    EXPECT_EQ(r[0].cached_tokens, cached) << version;
    for (const TokenOut& t : r[0].tokens) EXPECT_EQ(t.weights, version);
  };
  ask(0, 0);
  ask(0, 40);
  model.weights = 1000;
  EXPECT_EQ(engine.weights_changed(), 1);
  ask(1, 0);
  ask(1, 40);
  engine.sleep();
  model.weights = 2000;
  EXPECT_EQ(engine.weights_changed(), 2);
  engine.wake();
  ask(2, 0);
  Sampling scored = greedy(1);
  scored.prompt_logprobs = 0;
  const auto last = generate(engine, {p}, scored);
  for (const TokenOut& t : last[0].prompt) EXPECT_EQ(t.weights, 2);
}

// An answer that was begun under the old weights goes on under the new ones, and says which token is of which.
TEST(EngineRollout, AnswersUnderWayGoOnWithTheNewWeights) {
  FakeModel model;
  std::atomic<int> tokens{0};
  std::atomic<bool> changed{false};
  // From the tenth token on the steps are slow until the weights have changed, so that this happens in the middle.
  model.on_step = [&](const Step&) {
    for (int i = 0; i < 100 && tokens >= 10 && !changed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Engine engine(model, kOptions, spec());
  const auto p = prompt(3, 9);
  const Media media{{"cat", 2, 5}};
  std::vector<TokenOut> out;
  std::promise<void> tenth, over;
  engine.submit({.prompt = p, .media = media, .sampling = greedy(200), .sink = [&](const EngineEvent& e) {
                   out.insert(out.end(), e.tokens.begin(), e.tokens.end());
                   if (++tokens == 10) tenth.set_value();
                   if (e.finish != Finish::None) over.set_value();
                 }});
  tenth.get_future().get();
  engine.sleep();
  model.weights = 1000;
  engine.weights_changed();
  changed = true;
  engine.wake();
  over.get_future().get();
  ASSERT_EQ(out.size(), 200u);
  EXPECT_EQ(out.front().weights, 0);
  EXPECT_EQ(out.back().weights, 1);
  auto tokens_so_far = with_media(p, media);
  int64_t version = 0;
  for (const TokenOut& t : out) {
    EXPECT_GE(t.weights, version);
    version = t.weights;
    ASSERT_EQ(t.id, answer(tokens_so_far, 1, version ? 1000 : 0)[0]) << tokens_so_far.size();
    tokens_so_far.push_back(t.id);
  }
}

}  // namespace
}  // namespace apus
