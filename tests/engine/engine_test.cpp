// SPDX-License-Identifier: Apache-2.0
// The engine with a stand-in model: every request right under load, cancels, failures, sleep, adapters, limits.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <thread>

#include "engine/answer/answer_all.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

TEST(Engine, AnswersManyAtOnceThroughASmallCache) {
  FakeModel model;
  Engine engine(model, kOptions, spec(40, 12, 6));
  std::vector<EngineRequest> requests;
  for (uint64_t i = 0; i < 40; ++i)
    requests.push_back({.prompt = prompt(i % 30, 1 + i),
                        .sampling = greedy(static_cast<int64_t>(3 + i % 17)),
                        .priority = static_cast<int>(i % 3)});
  const auto wanted = requests;
  const auto results = generate(engine, std::move(requests));
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].finish, Finish::Length) << results[i].error;
    EXPECT_EQ(results[i].ids(), answer(wanted[i].prompt, wanted[i].sampling.max_new_tokens)) << i;
  }
  engine.sleep();  // the statistics after all of it
  const auto s = engine.stats();
  EXPECT_EQ(s.blocks_used, 0);
  EXPECT_EQ(s.running + s.waiting, 0);
  EXPECT_GT(s.preemptions, 0);
  EXPECT_EQ(s.failed_steps, 0);
}

TEST(Engine, StopTokensEndAnAnswerUnlessIgnored) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  const auto all = answer(prompt(1, 9), 20);
  Sampling s = greedy(20);
  s.stop_ids = {all[5]};
  const auto first = static_cast<size_t>(std::find(all.begin(), all.end(), all[5]) - all.begin());
  auto r = generate(engine, {prompt(1, 9)}, s);
  EXPECT_EQ(r[0].finish, Finish::Stop);
  EXPECT_EQ(r[0].ids(), std::vector<int32_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  s.ignore_eos = true;
  r = generate(engine, {prompt(1, 9)}, s);
  EXPECT_EQ(r[0].finish, Finish::Length);
  EXPECT_EQ(r[0].ids(), all);
}

// Which questions stand in a step does not follow from how fast they were handed over: on devices whose products depend
// on the number of rows, the same questions have the same bits every time.
TEST(Engine, QuestionsAskedTogetherAreInTheSameSteps) {
  using Steps = std::vector<std::vector<int64_t>>;
  Steps first;
  for (int run = 0; run < 40; ++run) {
    FakeModel model;
    Steps steps;
    model.on_step = [&](const Step& s) { steps.emplace_back(s.length_q.begin(), s.length_q.end()); };
    Engine engine(model, kOptions, spec(64, 64, 8));
    std::vector<EngineRequest> requests;
    for (uint64_t i = 0; i < 12; ++i) requests.push_back({.prompt = prompt(i, 3 + i), .sampling = greedy(4)});
    generate(engine, std::move(requests));
    engine.sleep();  // behind its last step
    if (run == 0) first = steps;
    ASSERT_EQ(steps, first) << "run " << run;
  }
  ASSERT_EQ(first.at(0).size(), 8u) << "as many as may run";
}

TEST(Engine, AllAreTakenOrNone) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  std::atomic<int> told{0};
  std::vector<EngineRequest> requests(3);
  for (EngineRequest& request : requests) request.prompt = {1}, request.sink = [&](const EngineEvent&) { ++told; };
  requests[2].prompt = {};
  EXPECT_THROW(engine.submit_all(std::move(requests)), Error);
  engine.sleep();
  EXPECT_EQ(told, 0);
  EXPECT_EQ(engine.stats().prompt_tokens, 0);
}

TEST(Engine, RefusesWhatCannotBe) {
  FakeModel model;
  Engine engine(model, kOptions, spec(16));
  EXPECT_EQ(engine.max_model_len(), 64) << "16 blocks of 4";
  EXPECT_THROW(engine.submit({.prompt = {}}), Error);
  EXPECT_THROW(engine.submit({.prompt = {5, 1000}}), Error);
  EXPECT_THROW(engine.submit({.prompt = {-1}}), Error);
  EXPECT_THROW(engine.submit({.prompt = prompt(1, 64)}), Error);
  EXPECT_THROW(engine.submit({.prompt = {1}, .adapter = "none"}), Error);
  EXPECT_THROW(engine.load_adapter("a", "dir"), Error);
  const auto r = generate(engine, {prompt(1, 60)}, greedy(100));
  EXPECT_EQ(r[0].ids().size(), 4u) << "what the context leaves";
  EXPECT_EQ(r[0].finish, Finish::Length);
}

TEST(Engine, AFailingStepEndsItsRequestsAndNothingElse) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  auto bad = prompt(1, 6);
  bad[3] = kPoison;
  const auto r = generate(engine, {bad}, greedy(5));
  EXPECT_EQ(r[0].finish, Finish::Failed);
  EXPECT_NE(r[0].error.find("poison"), std::string::npos);
  const auto good = generate(engine, {prompt(2, 6)}, greedy(5));
  EXPECT_EQ(good[0].ids(), answer(prompt(2, 6), 5));
  EXPECT_EQ(engine.stats().failed_steps, 1);
}

TEST(Engine, CancelFreesTheBlocksAndTellsSo) {
  FakeModel model;
  std::promise<void> started;
  Engine engine(model, kOptions, spec());
  std::promise<Finish> over;
  int64_t id = 0;
  std::atomic<int> tokens{0};
  std::promise<void> known;
  auto is_known = known.get_future().share();
  id = engine.submit({.prompt = prompt(3, 5), .sampling = greedy(200), .sink = [&, is_known](const EngineEvent& e) {
                        is_known.wait();
                        if (!e.tokens.empty() && ++tokens == 10) engine.cancel(id);
                        if (e.finish != Finish::None) over.set_value(e.finish);
                      }});
  known.set_value();
  EXPECT_EQ(over.get_future().get(), Finish::Cancelled);
  EXPECT_EQ(tokens, 10) << "nothing comes after the step in which it was cancelled";
  engine.sleep();
  EXPECT_EQ(engine.stats().blocks_used, 0);
  engine.cancel(id);  // once more does nothing
  engine.cancel(12345);
}

TEST(Engine, WhoWaitsAtTheEndIsTold) {
  FakeModel model;
  std::vector<std::future<Finish>> ends;
  {
    Engine engine(model, kOptions, spec());
    engine.sleep();
    for (int i = 0; i < 3; ++i) {
      auto promise = std::make_shared<std::promise<Finish>>();
      ends.push_back(promise->get_future());
      engine.submit({.prompt = prompt(1, 5), .sampling = greedy(5), .sink = [promise](const EngineEvent& e) {
                       promise->set_value(e.finish);
                     }});
    }
  }
  for (auto& end : ends) EXPECT_EQ(end.get(), Finish::Cancelled);
}

TEST(Engine, SleepingEngineKeepsItsRequests) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  auto all = std::async(std::launch::async, [&] {
    return generate(engine, {prompt(1, 9), prompt(2, 12)}, greedy(150));
  });
  for (int i = 0; i < 5; ++i) {
    engine.sleep();
    engine.wake();
  }
  const auto r = all.get();
  EXPECT_EQ(r[0].ids(), answer(prompt(1, 9), 150));
  EXPECT_EQ(r[1].ids(), answer(prompt(2, 12), 150));
}

TEST(Engine, TheModelGoesAndComesAgainInDeepSleep) {
  auto model = std::make_unique<FakeModel>();
  int read = 0;
  ModelHooks hooks;
  hooks.drop_model = [&] { model.reset(); };
  hooks.read_model = [&]() -> const Model* {
    require(++read > 1, Fault::Io, "the folder is away");
    model = std::make_unique<FakeModel>();
    return model.get();
  };
  Engine engine(*model, kOptions, spec(), hooks);
  auto all = std::async(std::launch::async, [&] { return generate(engine, {prompt(1, 9)}, greedy(150)); });
  engine.sleep(1);
  EXPECT_TRUE(model) << "the cache only";
  engine.sleep(2);
  engine.sleep(2);
  EXPECT_FALSE(model);
  EXPECT_EQ(engine.vocab(), kVocab) << "asked for while it sleeps";
  EXPECT_THROW(engine.wake(), Error);
  engine.wake();
  EXPECT_EQ(all.get()[0].ids(), answer(prompt(1, 9), 150)) << "what was under way goes on";
  EXPECT_EQ(read, 2);
  FakeModel other;
  Engine fixed(other, kOptions, spec());
  EXPECT_THROW(fixed.sleep(2), Error) << "its weights are somebody else's";
}

TEST(Engine, PrefixesAreFoundAgain) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  const auto p = prompt(5, 41);
  EXPECT_EQ(generate(engine, {p}, greedy(4))[0].cached_tokens, 0);
  const auto again = generate(engine, {p}, greedy(4));
  EXPECT_EQ(again[0].cached_tokens, 40);
  EXPECT_EQ(again[0].ids(), answer(p, 4));
  EngineSpec plain = spec();
  plain.prefix_caching = false;
  Engine without(model, kOptions, plain);
  generate(without, {p}, greedy(4));
  EXPECT_EQ(generate(without, {p}, greedy(4))[0].cached_tokens, 0);
}

TEST(Engine, DrawsDoNotDependOnTheBatch) {
  FakeModel model;
  const Sampling s{.temperature = 3, .top_p = 0.9, .seed = 11, .max_new_tokens = 30, .top_logprobs = 1};
  std::vector<std::vector<int32_t>> prompts, alone;
  for (uint64_t i = 0; i < 12; ++i) prompts.push_back(prompt(i, 3 + 2 * i));
  Engine wide(model, kOptions, spec(200, 7, 5)), narrow(model, kOptions, spec(200, 64, 1));
  const auto a = generate(wide, prompts, s), b = generate(narrow, prompts, s);
  int differ_from_greedy = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(a[i].ids(), b[i].ids());
    differ_from_greedy += a[i].ids() != answer(prompts[i], 30);
    for (const auto& t : a[i].tokens) {
      ASSERT_EQ(t.top.size(), 1u);
      EXPECT_GE(t.top[0].second, t.logprob);
    }
  }
  EXPECT_EQ(differ_from_greedy, 12);
  Sampling other = s;
  other.seed = 12;
  EXPECT_NE(generate(wide, {prompts[3]}, other)[0].ids(), a[3].ids());
}

TEST(Engine, PromptLogProbsInChunks) {
  FakeModel model;
  Engine engine(model, kOptions, spec(200, 7, 4));
  auto p = prompt(9, 3);
  for (const int32_t t : answer(p, 30)) p.push_back(t);  // from the fourth token on each is the likeliest
  Sampling s = greedy(2);
  s.prompt_logprobs = 2;
  for (int again = 0; again < 2; ++again) {  // the second time the prompt is in the cache
    const auto r = generate(engine, {p}, s);
    ASSERT_EQ(r[0].prompt.size(), p.size());
    const double total = std::log(std::exp(5.0) + std::exp(4.0) + 95);
    for (size_t i = 0; i < p.size(); ++i) {
      EXPECT_EQ(r[0].prompt[i].id, p[i]);
      if (i < 3) continue;
      EXPECT_NEAR(r[0].prompt[i].logprob, 5 - total, 1e-5);
      ASSERT_EQ(r[0].prompt[i].top.size(), 2u);
      EXPECT_EQ(r[0].prompt[i].top[0].first, p[i]);
    }
    EXPECT_EQ(r[0].ids(), answer(p, 2));
  }
}

TEST(Engine, EmbeddingsAreTheLastHiddenState) {
  FakeModel model;
  Engine engine(model, kOptions, spec(64, 4));
  std::promise<std::vector<float>> got;
  std::promise<Finish> over;
  engine.submit({.prompt = prompt(4, 11),
                 .embedding = true,
                 .sink = [&](const EngineEvent& e) { over.set_value(e.finish); },
                 .embedding_sink = [&](const std::vector<float>& v) { got.set_value(v); }});
  EXPECT_EQ(got.get_future().get(), std::vector<float>{static_cast<float>(next_token(prompt(4, 11)))});
  EXPECT_EQ(over.get_future().get(), Finish::Stop);
}

TEST(Engine, AFullQueueSaysSo) {
  FakeModel model;
  EngineSpec s = spec();
  s.max_waiting = 2;
  Engine engine(model, kOptions, s);
  engine.sleep();
  for (int i = 0; i < 2; ++i) engine.submit({.prompt = {1}, .sampling = greedy(2)});
  EXPECT_THROW(engine.submit({.prompt = {1}, .sampling = greedy(2)}), Error);
}

TEST(Engine, ManyThreadsAskCancelAndLook) {
  FakeModel model;
  Engine engine(model, kOptions, spec(48, 16, 6));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 15; ++i) {
        const auto p = prompt(t * 100 + i % 4, 5 + i);
        if (generate(engine, {p}, greedy(8))[0].ids() != answer(p, 8)) ++wrong;
        const int64_t id = engine.submit({.prompt = p, .sampling = greedy(60)});
        engine.stats();
        engine.cancel(id);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  engine.sleep();
  EXPECT_EQ(engine.stats().blocks_used, 0);
}

TEST(CacheSize, FollowsMemoryContextAndSeats) {
  const EngineSpec s{.block_size = 16, .max_sequences = 4, .memory_fraction = 0.5};
  // Half of 1000 blocks' memory, 100 of which are taken: 400.
  EXPECT_EQ(cache_size(s, 4096, 10, 10000, 9000, false).blocks, 400);
  EXPECT_EQ(cache_size(s, 4096, 10, 10000, 9000, false).max_model_len, 4096);
  EXPECT_EQ(cache_size(s, 8192, 10, 10000, 9000, false).max_model_len, 6400) << "less than one context fits";
  EXPECT_EQ(cache_size(s, 160, 10, 10000, 9000, false).blocks, 40) << "never more than all seats can fill";
  EXPECT_EQ(cache_size(s, 4096, 10, 10000, 4000, false).blocks, -100);
  EXPECT_EQ(cache_size({.block_size = 16, .max_sequences = 256, .cache_bytes = 70}, 4096, 10, 1, 1, false).blocks, 7);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(cache_size({.block_size = 16, .max_sequences = 256}, 32768, 1 << 20, huge, huge, true).blocks, 2048)
      << "host: 2 GiB, or one context";
  EXPECT_EQ(cache_size({.block_size = 16, .max_sequences = 256}, 65536, 1 << 20, huge, huge, true).blocks, 4096);
}

}  // namespace
}  // namespace apus
