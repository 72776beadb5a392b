// SPDX-License-Identifier: Apache-2.0
// The engine under constraints: they hold, survive preemption, and end their own request alone when they give up.
#include <gtest/gtest.h>

#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "tests/engine/fake_model.h"

namespace apus {
namespace {

using namespace testing_engine;

struct OnlyEven : Constraint {
  void allowed(std::vector<uint64_t>& mask) override { mask.assign(2, 0x5555555555555555ull); }
  void accept(int32_t) override { ++taken; }
  bool finished() const override { return taken == 6; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<OnlyEven>(*this); }
  int taken = 0;
};

TEST(Engine, ConstraintsHold) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  std::vector<EngineRequest> requests(1);
  requests[0] = {.prompt = prompt(4, 11), .sampling = greedy(50), .constraint = std::make_shared<OnlyEven>()};
  const auto r = generate(engine, std::move(requests));
  EXPECT_EQ(r[0].finish, Finish::Stop);
  ASSERT_EQ(r[0].ids().size(), 6u);
  for (const int32_t id : r[0].ids()) EXPECT_EQ(id % 2, 0);
}

// A guide among others that are preempted: each sample follows its own, and what it took stays taken.
TEST(Engine, ConstraintsSurvivePreemptionAndDoNotShare) {
  FakeModel model;
  Engine engine(model, kOptions, spec(14, 12, 6));
  const auto one = std::make_shared<OnlyEven>();
  std::vector<EngineRequest> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    Sampling s = greedy(20);
    if (i % 2) s.temperature = 1, s.seed = i;
    requests.push_back({.prompt = prompt(1, 20), .sampling = s, .constraint = i < 4 ? one->clone() : nullptr});
  }
  const auto r = generate(engine, std::move(requests));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(r[i].finish, Finish::Stop) << r[i].error;
    EXPECT_EQ(r[i].ids().size(), 6u);
    for (const int32_t id : r[i].ids()) EXPECT_EQ(id % 2, 0);
  }
  EXPECT_EQ(r[0].ids(), r[2].ids());
  EXPECT_EQ(r[4].ids(), answer(prompt(1, 20), 20));
  EXPECT_EQ(one->taken, 0);
  engine.sleep();
  EXPECT_GT(engine.stats().preemptions, 0);
}

struct GivesUp : OnlyEven {
  explicit GivesUp(bool at_mask) : at_mask(at_mask) {}
  void allowed(std::vector<uint64_t>& mask) override {
    require(!at_mask || taken < 2, Fault::Usage, "too ambiguous");
    OnlyEven::allowed(mask);
  }
  void accept(int32_t token) override {
    require(at_mask || taken < 2, Fault::Usage, "too ambiguous");
    OnlyEven::accept(token);
  }
  bool at_mask;
};

TEST(Engine, AConstraintThatGivesUpEndsItsRequestAlone) {
  FakeModel model;
  Engine engine(model, kOptions, spec());
  std::vector<EngineRequest> requests;
  for (const bool at_mask : {true, false})
    requests.push_back(
        {.prompt = prompt(4, 11), .sampling = greedy(50), .constraint = std::make_shared<GivesUp>(at_mask)});
  requests.push_back({.prompt = prompt(4, 11), .sampling = greedy(9)});
  const auto r = generate(engine, std::move(requests));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(r[i].finish, Finish::Failed);
    EXPECT_EQ(r[i].error, "too ambiguous");
  }
  EXPECT_EQ(r[2].ids(), answer(prompt(4, 11), 9));
  EXPECT_EQ(engine.stats().failed_steps, 0);
}

}  // namespace
}  // namespace apus
