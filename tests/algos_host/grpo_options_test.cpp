// SPDX-License-Identifier: Apache-2.0
#include "algos/options/grpo_options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace apus {
namespace {

std::string refusal(const std::function<void(GrpoOptions&, LoopOptions&)>& change, int64_t ranks = 1) {
  GrpoOptions o;
  o.reward_funcs = {"accuracy"};
  LoopOptions loop{.per_device_train_batch_size = 8, .gradient_accumulation_steps = 2};
  change(o, loop);
  try {
    o.check();
    o.check(loop, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.at.fault, Fault::Usage);
    return error.what();
  }
  return "";
}

TEST(GrpoOptions, RefuseWhatCannotBe) {
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "");
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.num_generations = 1; }), "must be greater than 1"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.num_generations = 5; }), "It could be 2, 4, 8, 16"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.reward_funcs = {}; }), "--reward_funcs is needed"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.kl_estimator = "k1"; }), "no gradient on average"));
  EXPECT_EQ(refusal([](auto& o, auto&) { o.kl_estimator = "k1", o.kl_in_reward = true; }), "");
  EXPECT_EQ(refusal([](auto& o, auto&) { o.kl_estimator = "k1", o.beta = 0; }), "");
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.steps_per_generation = 3; }), "--steps_per_generation 2 or 4"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.generation_batch_size = 20; }), "no multiple of the 8 answers"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.generation_batch_size = 16, o.steps_per_generation = 2; }),
                   "give one of them"));
  EXPECT_EQ(refusal([](auto& o, auto&) { o.generation_batch_size = 64; }, 2), "");
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.delta = 1.1; }), "must be above 1 + epsilon_high"));
  EXPECT_TRUE(says(refusal([](auto& o, auto& loop) { o.loss_type = "real", loop.per_device_train_batch_size = 4; }),
                   "whole groups"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.replay_rollouts = "f", o.advantage_estimator = "remax"; }), "remax"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.replay_rollouts = "f", o.num_iterations = 2; }), "num_train_epochs"));
  EXPECT_TRUE(
      says(refusal([](auto& o, auto&) { o.replay_rollouts = "f", o.dynamic_sample = true; }), "generates nothing"));
  EXPECT_EQ(refusal([](auto& o, auto&) { o.async_generate = true; }), "");
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.async_generate = true, o.max_staleness = 0; }), "give one of them"));
  EXPECT_EQ(refusal([](auto& o, auto&) { o.partial_rollout = true; }), "");
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.partial_rollout = true, o.max_staleness = 0; }), "give 1 or more"));
  EXPECT_TRUE(
      says(refusal([](auto& o, auto&) { o.partial_rollout = true, o.stop_words = {"."}; }), "give one of them"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.max_staleness = 1, o.replay_rollouts = "f"; }), "generates nothing"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.max_staleness = 1, o.deterministic_rollout = true; }), "moved on"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.max_staleness = 1, o.log_rollout_offpolicy_metrics = true; }),
                   "takes them apart"));
}

TEST(GrpoOptions, ShowAnswersLessAndLess) {
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.chord_mu_peak = 0.5; }), "give --chord_sft_dataset"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.chord_sft_dataset = {"f"}; }), "--chord_mu_valley"));
  ChordOptions o;
  o.chord_sft_dataset = {"f"}, o.chord_mu_peak = 0.9, o.chord_mu_valley = 0.1;
  o.chord_mu_warmup_steps = 4, o.chord_mu_decay_steps = 10;
  EXPECT_EQ(o.chord_mu(0), 0);
  EXPECT_DOUBLE_EQ(o.chord_mu(2), 0.45);
  EXPECT_DOUBLE_EQ(o.chord_mu(4), 0.9);
  EXPECT_DOUBLE_EQ(o.chord_mu(9), 0.5);
  EXPECT_DOUBLE_EQ(o.chord_mu(14), 0.1);
  EXPECT_DOUBLE_EQ(o.chord_mu(1000), 0.1);
}

TEST(GrpoOptions, DivideARound) {
  GrpoOptions o;
  const LoopOptions loop{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 4};
  EXPECT_EQ(o.division(loop, 1).questions, 2);
  EXPECT_EQ(o.division(loop, 1).updates, 1);
  o.steps_per_generation = 8;
  EXPECT_EQ(o.division(loop, 2).questions, 4);
  EXPECT_EQ(o.division(loop, 2).updates, 2);
}

// As few neighbours as have whole groups together answer the same questions.
TEST(GrpoOptions, ShareGroupsOutOverProcesses) {
  GrpoOptions o;
  o.num_generations = 8;
  const LoopOptions one{.per_device_train_batch_size = 1, .gradient_accumulation_steps = 1};
  EXPECT_EQ(o.division(one, 8).sharers, 8);
  EXPECT_EQ(o.group_sharers(one, 1), 8) << "so many processes it needs";
  EXPECT_EQ(o.division(one, 16).sharers, 8);
  EXPECT_EQ(o.division(one, 16).questions, 1);
  o.num_generations = 6;
  const LoopOptions four{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 1};
  EXPECT_EQ(o.division(four, 3).sharers, 3);
  EXPECT_EQ(o.division(four, 3).questions, 2);
  EXPECT_EQ(o.division({.per_device_train_batch_size = 12, .gradient_accumulation_steps = 1}, 3).sharers, 1);
  EXPECT_EQ(refusal([](auto& o, auto& l) { o.num_generations = 6, l.per_device_train_batch_size = 4; }, 3), "");
  EXPECT_NE(refusal([](auto& o, auto& l) { o.num_generations = 6, l.per_device_train_batch_size = 4; }, 2), "");
  const std::string resampled = refusal([](auto& o, auto&) { o.num_generations = 32, o.dynamic_sample = true; }, 2);
  EXPECT_NE(resampled.find("--dynamic_sample"), std::string::npos) << resampled;
}

TEST(GrpoOptions, HaveDefaultsThatFollowTheEstimator) {
  GrpoOptions o;
  EXPECT_EQ(o.scale(), "group");
  EXPECT_FALSE(o.kl_rewarded());
  EXPECT_EQ(o.kl(), "k3");
  o.advantage_estimator = "rloo";
  EXPECT_EQ(o.scale(), "none");
  EXPECT_TRUE(o.kl_rewarded());
  EXPECT_EQ(o.kl(), "k1");
  o.advantage_estimator = "reinforce_plus_plus";
  EXPECT_EQ(o.scale(), "batch");
  o.loss_type = "cispo";
  EXPECT_EQ(o.upper_epsilon(), 5);
}

TEST(GrpoOptions, WhatATeacherSays) {
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.advantage_reweight = "rlsd"; }), "--teacher_model DIR"));
  EXPECT_TRUE(says(refusal([](auto& o, auto&) { o.sdar_loss_coef = 0.1; }), "--teacher_model DIR"));
  const auto taught = [&](auto&& more) {
    return refusal([&](auto& o, auto&) {
      o.teacher_model = "teacher";
      more(o);
    });
  };
  EXPECT_EQ(taught([](auto& o) { o.advantage_reweight = "rlsd"; }), "");
  EXPECT_EQ(taught([](auto& o) { o.sdar_loss_coef = 0.1; }), "");
  EXPECT_TRUE(says(taught([](auto& o) { o.advantage_reweight = "rlsd", o.sdar_loss_coef = 0.1; }), "give one of them"));
  EXPECT_TRUE(says(taught([](auto& o) { o.advantage_reweight = "rlsd", o.reward_funcs = {}; }), "needs rewards"));
  EXPECT_TRUE(says(taught([](auto& o) { o.advantage_reweight = "rlsd", o.loss_type = "fipo"; }), "--loss_type fipo"));
}

TEST(GrpoOptions, RlsdRisesStaysAndFalls) {
  TeacherSayOptions o;
  o.rlsd_lambda = 0.8;
  EXPECT_DOUBLE_EQ(o.rlsd_lambda_at(1000), 0.8);
  o.rlsd_lambda_warmup_steps = 4, o.rlsd_lambda_decay_steps = 8;
  for (const auto& [step, value] : {std::pair{0, 0.0}, {1, 0.2}, {4, 0.8}, {6, 0.6}, {12, 0.0}, {50, 0.0}})
    EXPECT_NEAR(o.rlsd_lambda_at(step), value, 1e-12) << step;
}

}  // namespace
}  // namespace apus
