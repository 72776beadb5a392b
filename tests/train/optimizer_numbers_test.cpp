// SPDX-License-Identifier: Apache-2.0
// Three updates of four numbers, as the original implementations make them: torch 2.15 (Adagrad, RMSprop), optimi
// (Lion, StableAdamW), bitsandbytes' reference (AdEMAMix).
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/registry.h"
#include "tests/golden.h"
#include "train/optimizer.h"
#include "train/options/optimizer_info.h"

namespace apus {
namespace {

using Arguments = std::map<std::string, std::string>;
struct Known {
  std::string kind;
  Arguments arguments;
  std::vector<double> after;
};

TEST(OptimizerNumbers, AreTheOriginals) {
  const std::vector<Known> all = {
      {"adagrad", {}, {0.4749284, -0.3168336, 0.9135237, -0.2073438}},
      {"rmsprop", {}, {0.2973101, -0.7189356, 0.375137, -2.0928771}},
      {"rmsprop", {{"momentum", "0.9"}}, {-0.3877921, 0.4070468, -1.7067891, -4.60324}},
      {"lion", {}, {0.5861395, -0.3920797, 0.873289, -0.179594}},
      {"stable_adamw", {}, {0.4779639, -0.2111355, 0.8008586, -0.1147471}},
      {"ademamix", {}, {0.4856052, -0.2115687, 0.7915567, -0.1268663}},
      {"ademamix", {{"t_alpha", "10"}, {"t_beta3", "10"}}, {0.4856004, -0.2114428, 0.7914155, -0.1269068}},
  };
  const std::vector<std::vector<float>> gradients = {
      {0.1F, -0.2F, 0.3F, 0}, {-0.5F, 0.1F, 0.2F, 1}, {0.05F, 0.4F, -0.6F, 0.3F}};
  for (const Known& known : all) {
    NamedParam p{"p", at::tensor(std::vector<float>{0.5F, -0.3F, 1, 0.02F}).view({2, 2}).to(golden::device())};
    p.tensor.set_requires_grad(true);
    const auto optimizer = make_optimizer({.kind = known.kind, .beta1 = 0.9, .arguments = known.arguments},
                                          {{.name = "all", .lr = 0.1, .weight_decay = 0.1, .params = {p}}});
    for (const auto& gradient : gradients) {
      p.tensor.mutable_grad() = at::tensor(gradient).view({2, 2}).to(golden::device());
      optimizer->step(1, 1);
    }
    const at::Tensor now = p.tensor.detach().to(at::kCPU).flatten();
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_NEAR(now[i].item<double>(), known.after[static_cast<size_t>(i)], 2e-6) << known.kind << ", number " << i;
  }
}

TEST(OptimizerNumbers, EachDescriptionHasAnUpdate) {
  for (const auto& [name, info] : Registry<OptimizerInfo>::of().all()) {
    EXPECT_EQ(make_optimizer({.kind = name}, {})->kind(), name);
    for (const std::string& other : info.names) EXPECT_EQ(make_optimizer({.kind = other}, {})->kind(), name) << other;
  }
}

TEST(OptimizerNumbers, WhatIsNotKnownIsRefused) {
  EXPECT_THROW(make_optimizer({.kind = "newton"}, {}), Error);
  EXPECT_THROW(make_optimizer({.kind = "lion", .arguments = {{"beta3", "0.9"}}}, {}), Error);
  EXPECT_THROW(make_optimizer({.kind = "ademamix", .arguments = {{"beta3", "1.5"}}}, {}), Error);
}

}  // namespace
}  // namespace apus
