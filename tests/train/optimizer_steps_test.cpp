// SPDX-License-Identifier: Apache-2.0
// A parameter that gets no gradient in some steps (an expert without a token) learns as if those steps had not been:
// what an optimizer counts, it counts for each parameter.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tensor/noise.h"
#include "tests/golden.h"
#include "train/optimizer.h"

namespace apus {
namespace {

NamedParam param(const std::string& name, uint64_t seed) {
  return {name, normal_noise({6, 4}, 0, 1, seed).to(golden::device()).set_requires_grad(true)};
}
void give_gradient(NamedParam& p, uint64_t seed) {
  p.tensor.mutable_grad() = normal_noise({6, 4}, 0, 1, seed).to(golden::device());
}
std::unique_ptr<Optimizer> optimizer(const OptimizerSpec& spec, const std::vector<NamedParam>& params) {
  return make_optimizer(spec, {{.name = "all", .lr = 0.1, .weight_decay = 0.1, .params = params}});
}

const std::vector<OptimizerSpec>& specs() {
  static const std::vector<OptimizerSpec> all = {
      {},
      {.kind = "adamw_8bit"},
      {.kind = "adafactor"},
      {.kind = "muon"},
      {.kind = "muonclip"},
      {.kind = "sgd", .arguments = {{"momentum", "0.9"}, {"dampening", "0.5"}}},
      {.kind = "lion"},
      {.kind = "ademamix"},
      {.kind = "lion_8bit"},
      {.kind = "ademamix_8bit"},
      {.kind = "soap", .arguments = {{"precondition_frequency", "2"}}},
      {.kind = "adagrad"},
      {.kind = "rmsprop"},
      {.kind = "stable_adamw"},
      {.kind = "galore_adamw", .arguments = {{"rank", "2"}, {"update_proj_gap", "2"}, {"cos_threshold", "0"}}},
      {.kind = "galore_adamw_8bit", .arguments = {{"rank", "2"}, {"update_proj_gap", "2"}}},
      {.kind = "apollo_adamw", .arguments = {{"rank", "2"}, {"proj", "svd"}, {"update_proj_gap", "2"}}},
      {.kind = "schedule_free_adamw"},
      {.kind = "schedule_free_radam"},
      {.kind = "schedule_free_sgd"}};
  return all;
}

TEST(OptimizerSteps, AreThoseOfEachParameter) {
  for (const OptimizerSpec& spec : specs()) {
    NamedParam busy = param("busy", 1), late = param("late", 2), alone = param("late", 2);
    const auto both = optimizer(spec, {late, busy}), one = optimizer(spec, {alone});
    for (uint64_t step = 0; step < 4; ++step) {
      give_gradient(busy, 10 + step);
      if (step >= 2) give_gradient(late, 20 + step), give_gradient(alone, 20 + step), one->step(1, 1);
      both->step(1, 1);
      both->zero_grad(), one->zero_grad();
    }
    EXPECT_TRUE(at::equal(late.tensor, alone.tensor)) << both->kind();
    EXPECT_EQ(both->steps(), 4);
    EXPECT_EQ(both->steps_of(), (std::map<std::string, int64_t>{{"late", 2}})) << both->kind();
  }
}

TEST(OptimizerSteps, AreSavedAndLoaded) {
  for (const OptimizerSpec& spec : specs()) {
    NamedParam busy = param("busy", 1), late = param("late", 2);
    const auto first = optimizer(spec, {busy, late});
    for (uint64_t step = 0; step < 3; ++step) {
      give_gradient(busy, 10 + step);
      if (step == 2) give_gradient(late, 30);
      first->step(1, 1);
      first->zero_grad();
    }
    first->show_meant();  // what is saved
    NamedParam busy2{"busy", busy.tensor.detach().clone().set_requires_grad(true)},
        late2{"late", late.tensor.detach().clone().set_requires_grad(true)};
    const auto second = optimizer(spec, {busy2, late2});
    second->show_meant();
    second->load(first->state(), first->steps(), first->steps_of());
    first->show_trained(), second->show_trained();
    EXPECT_EQ(second->steps_of(), first->steps_of());
    for (NamedParam* p : {&busy, &late, &busy2, &late2}) give_gradient(*p, 40);
    first->step(1, 1), second->step(1, 1);
    EXPECT_TRUE(at::equal(busy.tensor, busy2.tensor)) << first->kind();
    EXPECT_TRUE(at::equal(late.tensor, late2.tensor)) << first->kind();
  }
}

}  // namespace
}  // namespace apus
