// SPDX-License-Identifier: Apache-2.0
// Three updates of four numbers, as the original implementations make them: torch 2.15 (Adagrad, RMSprop), optimi
// (Lion, StableAdamW), bitsandbytes' reference (AdEMAMix), galore_torch 1.0, apollo_torch 1.0.3, schedulefree 1.4.1,
// pytorch_optimizer 4.1 (SOAP), torchao 0.18 (AdamW in 4 bits).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/registry.h"
#include "tensor/noise.h"
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
  int64_t rounds = 1;              // over the three gradients
  std::vector<double> meant = {};  // where that is something else
};

Arguments galore(const std::string& type) {
  return {{"rank", "1"}, {"update_proj_gap", "2"}, {"scale", "0.5"}, {"proj_type", type}};
}
Arguments apollo(const std::string& scale) {
  return {{"rank", "1"}, {"update_proj_gap", "2"}, {"scale", "4"}, {"proj", "svd"}, {"scale_type", scale}};
}

// Five updates of 32 x 128 numbers; `after`: of some of them.
TEST(OptimizerNumbers, FourBitsAreTheOriginals) {
  const std::map<int64_t, double> after = {{0, -0.8605554},    {1, -0.8755766},  {100, -0.7671928}, {777, -0.6063434},
                                           {2048, -0.0106431}, {4000, 0.846404}, {4095, 0.836329}};
  const at::Tensor i = at::arange(4096, at::kFloat);
  const auto updated = [&](int64_t numbers, const OptimizerSpec& spec, at::ScalarType type) {
    NamedParam p{"p", at::linspace(-1, 1, 4096).sin().narrow(0, 0, numbers).to(golden::device(), type)};
    const auto optimizer = make_optimizer(spec, {{.name = "all", .lr = 0.01, .weight_decay = 0.1, .params = {p}}});
    for (int64_t s = 0; s < 5; ++s) {
      const at::Tensor g = (i * 0.37 + s).sin() * (i * (0.011 * static_cast<double>(s + 1))).cos() * 0.1;
      p.tensor.mutable_grad() = g.narrow(0, 0, numbers).to(golden::device(), type);
      optimizer->step(1, 1);
    }
    return p.tensor.to(at::kCPU, at::kFloat);
  };
  OptimizerSpec spec{.kind = "adamw_torch_4bit", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  const at::Tensor now = updated(4096, spec, at::kFloat);
  for (const auto& [place, value] : after) EXPECT_NEAR(now[place].item<double>(), value, 1e-5) << place;
  EXPECT_NEAR(now.sum().item<double>(), -0.4893618, 1e-3);
  // A last block that is not full is what it is in a longer row; an odd number of elements.
  EXPECT_LT((updated(4001, spec, at::kFloat).narrow(0, 0, 3968) - now.narrow(0, 0, 3968)).abs().max().item<double>(),
            1e-6);
  // Of bf16 weights, with and without an f32 copy, it goes the same way.
  for (const Rounding rounding : {Rounding::Master, Rounding::Stochastic}) {
    spec.rounding = rounding;
    EXPECT_LT((updated(4096, spec, at::kBFloat16) - now).abs().mean().item<double>(), 4e-3);
  }
}

// ms-swift 4.6's, its Newton-Schulz steps in f32 as here; largest logits of 50, 400 and 150 against 100.
TEST(OptimizerNumbers, MuonClipMakesQueriesAndKeysSmaller) {
  const std::map<std::string, std::vector<double>> known = {
      {"layers.0.self_attn.v_proj.weight", {0.518522, -0.2762885, 0.9395741, -0.0250943}},
      {"layers.0.self_attn.q_proj.weight", {0.2195723, -0.1138006, 0.3827926, -0.0185735}},
      {"embed_tokens.weight", {0.5489185, -0.2940277, 0.906806, -0.204594}}};
  for (const auto& [name, after] : known) {
    NamedParam p{name, at::tensor(std::vector<float>{0.5F, -0.3F, 1, 0.02F}).view({2, 2}).to(golden::device())};
    p.tensor.set_requires_grad(true);
    const auto optimizer =
        make_optimizer({.kind = "muonclip"}, {{.name = "all", .lr = 0.1, .weight_decay = 0.1, .params = {p}}});
    ASSERT_TRUE(optimizer->watches_logits());
    const std::vector<std::vector<float>> gradients = {
        {0.1F, -0.2F, 0.3F, 0}, {-0.5F, 0.1F, 0.2F, 1}, {0.05F, 0.4F, -0.6F, 0.3F}};
    const std::vector<double> largest = {50, 400, 150};
    for (size_t i = 0; i < 3; ++i) {
      p.tensor.mutable_grad() = at::tensor(gradients[i]).view({2, 2}).to(golden::device());
      optimizer->hear_largest_logit(largest[i]);
      optimizer->step(1, 1);
    }
    const at::Tensor now = p.tensor.detach().to(at::kCPU).flatten();
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(now[i].item<double>(), after[static_cast<size_t>(i)], 2e-6) << name;
  }
  EXPECT_FALSE(make_optimizer({.kind = "muonclip", .arguments = {{"qk_clip_enabled", "false"}}}, {})->watches_logits());
}

TEST(OptimizerNumbers, AreTheOriginals) {
  const std::vector<Known> all = {
      {"adagrad", {}, {0.4749284, -0.3168336, 0.9135237, -0.2073438}},
      {"rmsprop", {}, {0.2973101, -0.7189356, 0.375137, -2.0928771}},
      {"rmsprop", {{"momentum", "0.9"}}, {-0.3877921, 0.4070468, -1.7067891, -4.60324}},
      {"lion", {}, {0.5861395, -0.3920797, 0.873289, -0.179594}},
      {"stable_adamw", {}, {0.4779639, -0.2111355, 0.8008586, -0.1147471}},
      {"ademamix", {}, {0.4856052, -0.2115687, 0.7915567, -0.1268663}},
      {"ademamix", {{"t_alpha", "10"}, {"t_beta3", "10"}}, {0.4856004, -0.2114428, 0.7914155, -0.1269068}},
      {"soap", {{"precondition_frequency", "1"}}, {0.6990977, -0.3498859, 1.0217981, -0.2187969}},
      {"soap", {}, {0.6797405, -0.3326655, 1.027837, -0.2241051}},
      {"soap", {{"precondition_frequency", "2"}}, {0.9028352, -0.4563699, 1.0256789, -0.6671566}, 3},
      {"soap", {{"max_precondition_dim", "1"}}, {0.7654188, -0.5952096, 0.9269826, -0.3793692}, 2},
      {"galore_adamw", galore("std"), {0.4867023, -0.3012687, 0.9233283, 0.0263009}},
      {"galore_adamw", galore("reverse_std"), {0.4602867, -0.2804701, 0.9402275, 0.0442384}},
      {"galore_adamw", galore("full"), {0.4700152, -0.288776, 0.9510415, 0.0173383}},
      {"apollo_adamw", apollo("channel"), {0.3643367, -0.2553581, 0.7852483, -0.2684271}},
      {"apollo_adamw", apollo("tensor"), {0.493904, -0.2285108, 0.8038543, -0.2518764}},
      {.kind = "schedule_free_adamw",
       .after = {0.479537, -0.2989101, 0.8837714, -0.0977335},
       .meant = {0.4765401, -0.2870724, 0.8774981, -0.0897979}},
      {.kind = "schedule_free_adamw",
       .arguments = {{"r", "1"}, {"weight_lr_power", "1"}},
       .after = {0.4961534, -0.3301266, 0.8913784, -0.1259611},
       .meant = {0.495025, -0.3217677, 0.8859357, -0.1211853}},
      {.kind = "schedule_free_radam",
       .after = {0.5306673, -0.3407212, 1.0050799, -0.0422308},
       .rounds = 3,
       .meant = {0.5297548, -0.3375739, 1.0031874, -0.0395987}},
      {.kind = "schedule_free_sgd",
       .after = {0.5125657, -0.2969371, 0.9595051, -0.0621974},
       .meant = {0.5117339, -0.2942168, 0.9571209, -0.056881}},
  };
  const std::vector<std::vector<float>> gradients = {
      {0.1F, -0.2F, 0.3F, 0}, {-0.5F, 0.1F, 0.2F, 1}, {0.05F, 0.4F, -0.6F, 0.3F}};
  for (const Known& known : all) {
    NamedParam p{"p", at::tensor(std::vector<float>{0.5F, -0.3F, 1, 0.02F}).view({2, 2}).to(golden::device())};
    p.tensor.set_requires_grad(true);
    const auto optimizer = make_optimizer({.kind = known.kind, .beta1 = 0.9, .arguments = known.arguments},
                                          {{.name = "all", .lr = 0.1, .weight_decay = 0.1, .params = {p}}});
    for (size_t i = 0; i < static_cast<size_t>(known.rounds) * gradients.size(); ++i) {
      p.tensor.mutable_grad() = at::tensor(gradients[i % gradients.size()]).view({2, 2}).to(golden::device());
      optimizer->step(1, 1);
    }
    const auto expect = [&](const std::vector<double>& numbers) {
      const at::Tensor now = p.tensor.detach().to(at::kCPU).flatten();
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_NEAR(now[i].item<double>(), numbers[static_cast<size_t>(i)], 2e-6) << known.kind << ", number " << i;
    };
    expect(known.after);
    optimizer->show_meant();
    expect(known.meant.empty() ? known.after : known.meant);
    optimizer->show_trained();
    expect(known.after);
  }
}

// What moments in 8 bits and a random space change is little, or drawn: they are held against what they stand for.
TEST(OptimizerNumbers, GradientsInFewerDimensions) {
  const auto after = [&](const std::string& kind, const Arguments& arguments, const char* name) {
    NamedParam p{name, normal_noise({6, 40}, 0, 1, 3).to(golden::device()).set_requires_grad(true)};
    const auto optimizer = make_optimizer({.kind = kind, .arguments = arguments},
                                          {{.name = "all", .lr = 0.1, .weight_decay = 0.1, .params = {p}}});
    for (uint64_t step = 0; step < 6; ++step) {
      p.tensor.mutable_grad() = normal_noise({6, 40}, 0, 1, 10 + step / 2).to(golden::device());
      optimizer->step(1, 1);
    }
    return std::pair{p.tensor.detach().to(at::kCPU), optimizer->state()};
  };
  constexpr const char *kMatrix = "model.layers.0.mlp.up_proj.weight", *kTable = "model.embed_tokens.weight";
  const auto difference = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); };
  const Arguments small = {{"rank", "2"}, {"update_proj_gap", "2"}, {"scale", "1"}};
  const auto wide = after("galore_adamw", small, kMatrix), narrow = after("galore_adamw_8bit", small, kMatrix);
  EXPECT_LT(difference(wide.first, narrow.first), 0.1);
  EXPECT_EQ(wide.second.at(str(kMatrix, "/exp_avg")).sizes(), (std::vector<int64_t>{2, 40}));
  EXPECT_EQ(wide.second.at(str(kMatrix, "/projector_left")).sizes(), (std::vector<int64_t>{6, 2}));
  // Of a table AdamW, whatever the others are.
  const at::Tensor table = after("adamw", {}, kTable).first;
  EXPECT_EQ(difference(after("galore_adamw", small, kTable).first, table), 0);
  EXPECT_EQ(difference(after("apollo_adamw", small, kTable).first, table), 0);
  // Spaces of neighbours that were chosen by equal gradients are the same ones: they are kept for longer.
  Arguments lazy = small;
  lazy.insert({{"cos_threshold", "-1"}, {"queue_size", "1"}, {"gamma_proj", "3"}});
  const auto ages = after("galore_adamw", lazy, kMatrix).second.at(str(kMatrix, "/projector_ages"));
  EXPECT_EQ(ages[0].item<double>(), 6);
  EXPECT_EQ(ages[1].item<double>(), 1);
  // A random space is drawn alike in every run.
  const at::Tensor mini = after("apollo_adamw", {{"rank", "1"}, {"scale_type", "tensor"}}, kMatrix).first;
  EXPECT_GT(difference(mini, normal_noise({6, 40}, 0, 1, 3)), 0.01);
  EXPECT_EQ(difference(mini, after("apollo_adamw", {{"rank", "1"}, {"scale_type", "tensor"}}, kMatrix).first), 0);
}

// Moments in 8 bits against the same optimizer's in f32: signs may differ where Lion's momentum is next to nothing.
TEST(OptimizerNumbers, SmallMoments) {
  for (const char* kind : {"lion", "ademamix"}) {
    std::vector<at::Tensor> after;
    for (const char* bits : {"", "_8bit"}) {
      NamedParam p{"p", normal_noise({6, 100}, 0, 1, 3).to(golden::device()).set_requires_grad(true)};
      const auto optimizer = make_optimizer({.kind = str(kind, bits)}, {{.name = "all", .lr = 0.01, .params = {p}}});
      for (uint64_t step = 0; step < 20; ++step) {
        p.tensor.mutable_grad() = normal_noise({6, 100}, 0.5, 1, 10 + step).to(golden::device());
        optimizer->step(1, 1);
      }
      const auto state = optimizer->state();
      if (*bits) EXPECT_EQ(state.at("p/exp_avg").scalar_type(), at::kChar) << kind;
      if (*bits) EXPECT_EQ(state.at("p/exp_avg_scale").numel(), 3) << kind;  // of 256 each
      after.push_back(p.tensor.detach().to(at::kCPU));
    }
    const at::Tensor moved = (after[0] - normal_noise({6, 100}, 0, 1, 3)).norm(), off = (after[1] - after[0]).norm();
    EXPECT_LT(off.item<double>(), 0.1 * moved.item<double>()) << kind;
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
  EXPECT_THROW(make_optimizer({.kind = "apollo_adamw", .arguments = {{"proj_type", "full"}}}, {}), Error);
  EXPECT_THROW(make_optimizer({.kind = "galore_adamw", .arguments = {{"rank", "0"}}}, {}), Error);
  EXPECT_THROW(make_optimizer({.kind = "schedule_free_sgd", .arguments = {{"momentum", "1"}}}, {}), Error);
  EXPECT_THROW(make_optimizer({.kind = "soap", .arguments = {{"precondition_frequency", "0"}}}, {}), Error);
  EXPECT_THROW(make_optimizer({.kind = "ademamix", .arguments = {{"beta3", "1.5"}}}, {}), Error);
}

}  // namespace
}  // namespace apus
