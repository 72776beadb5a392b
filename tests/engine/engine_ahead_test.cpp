// SPDX-License-Identifier: Apache-2.0
// The engine one step behind the device: the same answers as when it waits for each token, whatever ends, is cancelled,
// makes room, fails or changes while a step is under way.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>

#include "base/random.h"
#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

EngineSpec behind(EngineSpec s, bool yes = true) {
  s.run_ahead = yes;
  return s;
}

// One request alone. Of each step, how many tokens had been told of when it was asked for.
std::vector<int64_t> told_before_steps(EngineSpec spec, EngineRequest request) {
  FakeModel model;
  std::vector<int64_t> told;
  int64_t tokens = 0;  // all of this is on the engine's thread
  model.on_step = [&](const Step&) { told.push_back(tokens); };
  Engine engine(model, kOptions, spec);
  std::promise<void> over;
  request.sink = [&](const EngineEvent& e) {
    tokens += std::ssize(e.tokens);
    if (e.finish != Finish::None) over.set_value();
  };
  engine.submit(std::move(request));
  over.get_future().wait();
  engine.sleep();
  return told;
}

struct AllowsAll : Constraint {
  void allowed(std::vector<uint64_t>& mask) override { mask.assign(2, ~uint64_t{0}); }
  void accept(int32_t) override {}
  bool finished() const override { return false; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<AllowsAll>(); }
};

TEST(EngineAhead, AStepIsAskedForBeforeTheTokensOfTheOneBeforeAreKnown) {
  const EngineRequest plain{.prompt = prompt(1, 5), .sampling = greedy(8)};
  const std::vector<int64_t> waits{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(told_before_steps(behind(spec()), plain), (std::vector<int64_t>{0, 1, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(told_before_steps(behind(spec(), false), plain), waits);
  EXPECT_EQ(told_before_steps(spec(), plain), waits) << "a processor computes beside nobody";
  EngineRequest drawn = plain;
  drawn.sampling = {.temperature = 0.7, .top_p = 0.9, .max_new_tokens = 8, .top_logprobs = 0};
  EXPECT_NE(told_before_steps(behind(spec()), drawn), waits);
}

TEST(EngineAhead, TheHostIsWaitedForWhereItHasASayInTheNextToken) {
  std::vector<EngineRequest> requests(5, {.prompt = prompt(1, 5), .sampling = greedy(8)});
  requests[0].sampling.repetition_penalty = 1.1;
  requests[1].sampling.top_logprobs = 2;
  requests[2].sampling.no_repeat_ngram_size = 3;
  requests[3].sampling.logit_bias = {{3, 1.F}};
  requests[4].constraint = std::make_shared<AllowsAll>();
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(told_before_steps(behind(spec()), requests[i]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7})) << i;
  EngineSpec guesses = behind(spec());
  guesses.draft = {.tokens = 1, .longest = 100, .shortest = 100};  // which it never finds
  EXPECT_EQ(told_before_steps(guesses, {.prompt = prompt(1, 5), .sampling = greedy(3)}),
            (std::vector<int64_t>{0, 1, 2}));
}

// Answers of many lengths, some ended by a token, greedy and drawn, more than fit at once.
std::vector<EngineRequest> mixed_requests() {
  std::vector<EngineRequest> requests;
  for (uint64_t i = 0; i < 60; ++i) {
    EngineRequest r{.prompt = prompt(i % 23, 1 + i % 31),
                    .sampling = greedy(static_cast<int64_t>(1 + i * 7 % 40)),
                    .priority = static_cast<int>(i % 7 == 0)};
    if (i % 3 == 1) r.sampling.temperature = 2, r.sampling.top_p = 0.9, r.sampling.seed = i;
    if (i % 4 == 1) r.sampling.top_logprobs = 0;
    if (i % 5 == 2) r.sampling.stop_ids = {3, 14, 15, 26, 35, 58};
    if (i % 10 == 2) r.sampling.min_new_tokens = 6;
    if (i % 20 == 19) r.sampling.frequency_penalty = 0.5;
    requests.push_back(std::move(r));
  }
  return requests;
}

TEST(EngineAhead, TheSameAnswersAsWithoutIt) {
  FakeModel model;
  int64_t preemptions = 0, cached = 0, stops = 0;
  for (const int64_t blocks : {20, 40, 400}) {
    Engine waits(model, kOptions, behind(spec(blocks, 12, 6), false)),
        ahead(model, kOptions, behind(spec(blocks, 12, 6)));
    for (int again = 0; again < 3; ++again) {  // from the second time on with what the cache remembers
      const auto wanted = generate(waits, mixed_requests()), got = generate(ahead, mixed_requests());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].error, "") << i;
        ASSERT_EQ(got[i].ids(), wanted[i].ids()) << i;
        ASSERT_EQ(got[i].finish, wanted[i].finish) << i;
        stops += got[i].finish == Finish::Stop;
        for (size_t t = 0; t < got[i].tokens.size(); ++t)
          ASSERT_NEAR(got[i].tokens[t].logprob, wanted[i].tokens[t].logprob, 1e-6) << i;
      }
    }
    waits.sleep(), ahead.sleep();  // the statistics after all of it
    const EngineStats a = ahead.stats(), w = waits.stats();
    EXPECT_EQ(a.generated_tokens, w.generated_tokens) << "what was thrown away is not counted";
    EXPECT_EQ(a.blocks_used, 0);
    EXPECT_EQ(a.failed_steps, 0);
    preemptions += a.preemptions, cached += a.cached_tokens;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(cached, 0);
  EXPECT_GT(stops, 0);
}

// What an answer that has ended left in its blocks is not what comes after it in another text.
TEST(EngineAhead, TheCacheHasNothingOfWhatWasThrownAway) {
  FakeModel model;
  Engine engine(model, kOptions, behind(spec(64, 64)));
  for (uint64_t i = 0; i < 30; ++i) {
    const auto first = prompt(i, 3 + i), all = answer(first, 12);
    Sampling stop = greedy(20);
    stop.stop_ids = {all[8]};
    const auto got = generate(engine, {first}, stop)[0].ids();
    auto next = first;
    next.insert(next.end(), got.begin(), got.end());
    next.insert(next.end(), {5, 6, 7, 8, 9});
    EXPECT_EQ(generate(engine, {next}, greedy(5))[0].ids(), answer(next, 5)) << i;
  }
}

TEST(EngineAhead, NothingIsToldAfterACancel) {
  FakeModel model;
  Engine engine(model, kOptions, behind(spec()));
  std::promise<Finish> over;
  std::promise<int64_t> known;
  const auto id = known.get_future().share();
  std::atomic<int> tokens{0};
  known.set_value(
      engine.submit({.prompt = prompt(3, 5), .sampling = greedy(200), .sink = [&, id](const EngineEvent& e) {
                       tokens += static_cast<int>(e.tokens.size());
                       if (!e.tokens.empty() && tokens == 10) engine.cancel(id.get());
                       if (e.finish != Finish::None) over.set_value(e.finish);
                     }}));
  EXPECT_EQ(over.get_future().get(), Finish::Cancelled);
  const auto again = generate(engine, {prompt(3, 5)}, greedy(30));  // over the blocks of the step under way
  EXPECT_EQ(again[0].ids(), answer(prompt(3, 5), 30));
  EXPECT_EQ(tokens, 10);
  engine.sleep();
  EXPECT_EQ(engine.stats().blocks_used, 0);
}

TEST(EngineAhead, ManyComeAndGo) {
  FakeModel model;
  Engine engine(model, kOptions, behind(spec(48, 16, 6)));
  std::vector<std::future<int>> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.push_back(std::async(std::launch::async, [&, t] {
      int wrong = 0;
      for (uint64_t i = 0; i < 15; ++i) {
        const auto p = prompt(t * 100 + i % 4, 5 + i);
        const int64_t id = engine.submit({.prompt = p, .sampling = greedy(60)});
        wrong += generate(engine, {p}, greedy(20))[0].ids() != answer(p, 20);
        engine.cancel(id);
      }
      return wrong;
    }));
  for (auto& t : threads) EXPECT_EQ(t.get(), 0);
  engine.sleep();
  EXPECT_EQ(engine.stats().blocks_used, 0);
}

TEST(EngineAhead, AStepThatCannotBeAskedForEndsItsRequestsBehindWhatIsKnown) {
  FakeModel model;
  int steps = 0;
  model.on_step = [&](const Step&) { require(++steps != 5, Fault::Device, "no memory"); };
  Engine engine(model, kOptions, behind(spec()));
  const auto r = generate(engine, {prompt(1, 5), prompt(2, 5)}, greedy(20));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(r[i].finish, Finish::Failed);
    EXPECT_NE(r[i].error.find("no memory"), std::string::npos);
    EXPECT_EQ(r[i].ids(), answer(prompt(i + 1, 5), 4)) << "of the four steps before";
  }
  EXPECT_EQ(generate(engine, {prompt(2, 6)}, greedy(5))[0].ids(), answer(prompt(2, 6), 5));
  EXPECT_EQ(engine.stats().failed_steps, 1);
}

// Its logits have no numbers behind one token.
class BreakingModel : public FakeModel {
 public:
  at::Tensor embed(const Inputs& in, const Step& s) const override {
    EXPECT_GE(in.id_T.min().item<int64_t>(), 0);
    broken = in.id_T.eq(broken_token);
    return FakeModel::embed(in, s);
  }
  at::Tensor head(const at::Tensor& x_TD, const Step& s) const override {
    at::Tensor logits = FakeModel::head(x_TD, s);
    if (broken.size(0) == logits.size(0))
      logits.masked_fill_(broken.unsqueeze(1), std::numeric_limits<float>::quiet_NaN());
    return logits;
  }
  int64_t broken_token = -1;
  mutable at::Tensor broken;
};

TEST(EngineAhead, AnAnswerWithoutNumbersEndsAlone) {
  BreakingModel model;
  const auto bad = answer(prompt(1, 5), 20), good = answer(prompt(2, 5), 20);
  size_t at = 5;  // a token of the one answer that the other has not, and that it has once
  while (std::count(bad.begin(), bad.end(), bad[at]) > 1 || std::count(good.begin(), good.end(), bad[at]) > 0) ++at;
  model.broken_token = bad[at];
  Engine engine(model, kOptions, behind(spec()));
  const auto r = generate(engine, {prompt(1, 5), prompt(2, 5)}, greedy(20));
  EXPECT_EQ(r[0].finish, Finish::Failed);
  EXPECT_EQ(r[0].ids(), std::vector<int32_t>(bad.begin(), bad.begin() + static_cast<std::ptrdiff_t>(at) + 1));
  EXPECT_EQ(r[1].ids(), good);
}

TEST(EngineAhead, SleepingAndOtherWeightsComeBehindWhatIsUnderWay) {
  FakeModel model;
  Engine engine(model, kOptions, behind(spec()));
  const auto p = prompt(1, 9);
  std::vector<TokenOut> tokens;
  std::promise<void> begun, over;
  engine.submit({.prompt = p, .sampling = greedy(200), .sink = [&](const EngineEvent& e) {
                   tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
                   if (tokens.size() == 5 && !e.tokens.empty()) begun.set_value();
                   if (e.finish != Finish::None) over.set_value();
                 }});
  begun.get_future().wait();
  for (int i = 0; i < 5; ++i) {
    engine.sleep();
    model.weights += 100;
    engine.weights_changed();
    engine.wake();
  }
  over.get_future().wait();
  ASSERT_EQ(tokens.size(), 200u);
  std::vector<int32_t> text = p;
  for (const TokenOut& t : tokens) {
    ASSERT_EQ(t.id, answer(text, 1, static_cast<int32_t>(t.weights) * 100)[0])
        << "each token is of the weights it names";
    text.push_back(t.id);
  }
}

// Another answer goes on without it.
TEST(EngineAhead, AnAdapterLeavesWhenNothingIsUnderWay) {
  FakeModel model;
  int64_t steps = 0, told = 0, steps_then = -1, told_then = -1;  // all of this is on the engine's thread
  model.on_step = [&](const Step&) { ++steps; };
  Engine engine(model, kOptions, behind(spec(64, 64)),
                {.load = [](auto&, auto&) {}, .unload = [&](auto&) { steps_then = steps, told_then = told; }});
  engine.load_adapter("a", "");
  std::promise<void> over;
  std::vector<EngineRequest> requests(2, {.prompt = prompt(7, 10), .sampling = greedy(30)});
  requests[0].adapter = "a";
  requests[1].sampling.max_new_tokens = 200;
  requests[1].sink = [&](const EngineEvent& e) {
    told += std::ssize(e.tokens);
    if (e.finish != Finish::None) over.set_value();
  };
  engine.submit_all(std::move(requests));
  engine.unload_adapter("a");
  over.get_future().wait();
  EXPECT_GE(steps_then, 30);
  EXPECT_EQ(steps_then, told_then);
}

}  // namespace
}  // namespace apus
