// SPDX-License-Identifier: Apache-2.0
// The engine guessing ahead (speculative decoding): whoever is asked, however it is sampled, and whatever happens on
// the way, the answers are those of an engine that does not guess, token by token and log-prob by log-prob.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <future>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

// Three words only: what stood before is often right about what comes next, and often wrong.
class Babbler : public FakeModel {
 public:
  at::Tensor head(const at::Tensor& x_TD, const Step&) const override {
    at::Tensor logits = at::full({x_TD.size(0), kVocab}, -20, at::kFloat);
    for (int64_t t = 0; t < x_TD.size(0); ++t) {
      const auto best = static_cast<int64_t>(x_TD.data_ptr<float>()[t]) % 3;
      logits[t][best] = 1;
      logits[t][(best + 1) % 3] = 0;
    }
    return logits;
  }
};

struct OneOfThree : Constraint {
  void allowed(std::vector<uint64_t>& mask) override { mask.assign(2, taken % 3 == 2 ? 0b001 : 0b111); }
  void accept(int32_t) override { ++taken; }
  bool finished() const override { return taken == 20; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<OneOfThree>(*this); }
  int taken = 0;
};

// Every kind of request that changes what is chosen.
std::vector<EngineRequest> all_kinds() {
  std::vector<EngineRequest> out;
  for (uint64_t i = 0; i < 18; ++i) {
    Sampling s = greedy(static_cast<int64_t>(12 + i % 5));
    s.seed = i;
    if (i % 2) s.temperature = 1;
    if (i % 3 == 0) s.top_logprobs = 2;
    if (i % 9 == 4) s.frequency_penalty = 0.7, s.repetition_penalty = 1.3;
    if (i % 9 == 5) s.stop_ids = {2}, s.min_new_tokens = 5;
    if (i % 9 == 6) s.top_k = 2, s.logit_bias = {{1, 0.5F}};
    if (i % 9 == 7) s.no_repeat_ngram_size = 4;
    if (i % 9 == 8) s.prompt_logprobs = 0;
    out.push_back({.prompt = prompt(i % 4, 3 + i % 7),
                   .sampling = s,
                   .constraint = i % 9 == 3 ? std::make_shared<OneOfThree>() : nullptr});
  }
  return out;
}

void expect_same(const std::vector<FinishedAnswer>& got, const std::vector<FinishedAnswer>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].finish, wanted[i].finish) << i << ": " << got[i].error;
    EXPECT_EQ(got[i].ids(), wanted[i].ids()) << i;
    ASSERT_EQ(got[i].prompt.size(), wanted[i].prompt.size()) << i;
    for (size_t t = 0; t < std::min(got[i].tokens.size(), wanted[i].tokens.size()); ++t) {
      EXPECT_EQ(got[i].tokens[t].logprob, wanted[i].tokens[t].logprob) << i;
      EXPECT_EQ(got[i].tokens[t].top, wanted[i].tokens[t].top) << i;
    }
  }
}

TEST(EngineDrafts, ChangeNothingOfAnyAnswer) {
  const Babbler model;
  Engine plain(model, kOptions, spec(64, 64, 8));
  const auto wanted = generate(plain, all_kinds());
  for (const auto& [blocks, budget, sequences] : std::vector<std::array<int64_t, 3>>{{64, 64, 8}, {12, 9, 6}}) {
    EngineSpec guessing = spec(blocks, budget, sequences);
    guessing.draft = {.tokens = 4, .longest = 3};
    Engine engine(model, kOptions, guessing);
    expect_same(generate(engine, all_kinds()), wanted);
    expect_same(generate(engine, all_kinds()), wanted);  // from the prefix cache
    engine.sleep();
    const EngineStats s = engine.stats();
    EXPECT_GT(s.accepted_tokens, 0);
    EXPECT_GT(s.drafted_tokens, s.accepted_tokens);
    EXPECT_EQ(s.blocks_used, 0);
    EXPECT_EQ(s.failed_steps, 0);
    EXPECT_EQ(s.preemptions > 0, blocks < 64);
  }
}

// One request: each pass gives the guesses that were right, and one token more.
TEST(EngineDrafts, SavePassesAndAreCounted) {
  const Babbler model;
  EngineSpec guessing = spec();
  guessing.draft = {.tokens = 4, .longest = 3};
  Engine engine(model, kOptions, guessing);
  int64_t drafted = 0, accepted = 0;
  std::promise<void> over;
  engine.submit({.prompt = prompt(1, 5), .sampling = greedy(100), .sink = [&](const EngineEvent& e) {
                   drafted += e.drafted, accepted += e.accepted;
                   if (e.finish != Finish::None) over.set_value();
                 }});
  over.get_future().wait();
  engine.sleep();
  const EngineStats s = engine.stats();
  EXPECT_EQ(drafted, s.drafted_tokens);
  EXPECT_EQ(accepted, s.accepted_tokens);
  EXPECT_EQ(s.steps, s.generated_tokens - s.accepted_tokens);
  EXPECT_LT(s.steps, 100);
}

// A model that guesses, and is always right, or as often as a vocabulary of three has it.
TEST(EngineDrafts, OfAnotherModel) {
  const Babbler model;
  Engine plain(model, kOptions, spec(64, 64, 8));
  const auto wanted = generate(plain, all_kinds());
  for (const int32_t weights : {0, 1}) {
    const auto small = std::make_shared<Babbler>();
    small->weights = weights;
    EngineSpec guessing = spec(16, 40, 6);
    guessing.cache_bytes *= 2;  // both models' keys and values
    guessing.draft = {.tokens = 3, .model = "small"};
    Engine engine(model, kOptions, guessing, {.draft = small});
    EXPECT_EQ(engine.cache_tokens(), 64);
    expect_same(generate(engine, all_kinds()), wanted);
    engine.sleep();
    engine.wake();
    const EngineStats before = engine.stats();
    EXPECT_GT(before.preemptions, 0);
    const auto alone = generate(engine, {prompt(1, 5)}, greedy(40));
    EXPECT_EQ(alone[0].ids(), generate(plain, {prompt(1, 5)}, greedy(40))[0].ids());
    engine.sleep();
    const EngineStats s = engine.stats();
    const int64_t drafted = s.drafted_tokens - before.drafted_tokens,
                  accepted = s.accepted_tokens - before.accepted_tokens;
    EXPECT_GT(accepted, 0);
    EXPECT_EQ(accepted == drafted, weights == 0) << accepted << " of " << drafted;
    EXPECT_LT(s.steps - before.steps, 40);
  }
}

TEST(EngineDrafts, AreLeftOutWhereManyGenerate) {
  const Babbler model;
  std::vector<int64_t> drafted;
  for (const int64_t most : {1, 8}) {
    EngineSpec guessing = spec(64, 64, 8);
    guessing.draft = {.tokens = 4, .longest = 3, .max_sequences = most};
    Engine engine(model, kOptions, guessing);
    generate(engine, all_kinds());
    engine.sleep();
    drafted.push_back(engine.stats().drafted_tokens);
  }
  EXPECT_LT(drafted[0] * 4, drafted[1]);
}

}  // namespace
}  // namespace apus
