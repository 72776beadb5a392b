// SPDX-License-Identifier: Apache-2.0
// LoRA on experts, grouped, against the same experts one by one:
// outputs, gradients, adapters of some tokens alone, dropout.
#include "nn/expert_lora.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>

#include "nn/lora.h"
#include "nn/moe.h"
#include "nn/training_step.h"
#include "tensor/noise.h"
#include "tests/ops/devices.h"

namespace apus {
namespace {

using ops::test::device;
using ops::test::exact;
using ops::test::expect_close;
using ops::test::normal;
using ops::test::placed;
using ops::test::Tensors;

constexpr int64_t kExperts = 5, kHidden = 48, kFfn = 40, kTokens = 23, kPerToken = 2;

struct Setting {
  std::vector<std::string> matrices = {"gate_proj", "up_proj", "down_proj"};
  std::vector<std::string> adapters = {"default"};
  double dropout = 0;
};

// One by one: an adapter more, on one expert alone, that changes nothing.
struct Layer {
  Layer(const Setting& s, bool one_by_one, at::ScalarType type, at::ScalarType factors)
      : experts(kExperts, kHidden, kFfn, {}, {}) {
    uint64_t seed = 1;
    experts.visit([&](const std::string&, Param& p) { p.data = placed(normal(p.full, seed++, 0.2), type); });
    experts.visit_modules([&](const std::string& name, Module& m) {
      auto* layer = dynamic_cast<Linear*>(&m);
      if (!layer) return;
      const auto attach = [&](const std::string& adapter, const Lora::Spec& spec, double size) {
        auto lora = std::make_unique<Lora>(spec, nullptr);
        lora->a().data = placed(normal(lora->a().full, seed++, 0.2), factors).requires_grad_();
        lora->b().data = placed(normal(lora->b().full, seed++, 0.2) * size, factors).requires_grad_();
        layer->attach(adapter, std::move(lora));
      };
      const Lora::Spec spec{
          .in = layer->spec().in, .out = layer->spec().out, .rank = 3, .alpha = 6, .dropout = s.dropout, .id = seed};
      for (const std::string& matrix : s.matrices)
        for (const std::string& adapter : s.adapters)
          if (name.ends_with(matrix)) attach(adapter, spec, 1);
      const uint64_t next = seed;  // the others' values are the same with and without it
      if (one_by_one && name == "0.gate_proj") attach("nothing", spec, 0);
      seed = next;
    });
  }
  // The factors' values, without those of "nothing".
  std::vector<std::pair<std::string, at::Tensor>> factors() {
    std::vector<std::pair<std::string, at::Tensor>> out;
    experts.visit([&](const std::string& name, Param& p) {
      if (name.find("lora_") != std::string::npos && name.find("nothing") == std::string::npos)
        out.emplace_back(name, p.data);
    });
    return out;
  }
  Experts experts;
};

struct MixtureInputs {
  explicit MixtureInputs(at::ScalarType type)
      : x(placed(normal({kTokens, kHidden}, 101), type).requires_grad_()),
        weight(placed(normal({kTokens, kPerToken}, 102).abs(), type).requires_grad_()) {
    std::vector<int64_t> chosen;  // expert 3 has no token
    for (int64_t t = 0; t < kTokens; ++t) chosen.insert(chosen.end(), {t % 3, t % 2 ? 4 : (t + 1) % 3});
    expert = at::tensor(chosen, at::kLong).view({kTokens, kPerToken}).to(device().device);
  }
  at::Tensor x, weight, expert;
};

// The result, then the gradients of x, of the weights, and of every factor (undefined where an expert did not run).
Tensors run(Layer& layer, const MixtureInputs& in, const Step& s) {
  const at::Tensor y = layer.experts(in.x, in.weight, in.expert, s);
  Tensors of{in.x, in.weight}, out{y.detach()};
  for (const auto& [name, factor] : layer.factors()) of.push_back(factor);
  const Tensors d = ops::test::gradients({y}, of, {placed(normal(y.sizes(), 103), y.scalar_type())});
  out.insert(out.end(), d.begin(), d.end());
  return out;
}

void expect_alike(const Tensors& a, const Tensors& b, double limit) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) expect_close(a[i], b[i], limit, str("tensor ", i));
  }
}

class ExpertLoras : public ops::test::OpTest {};

TEST_P(ExpertLoras, GroupedIsOneByOne) {
  const at::ScalarType type = GetParam();
  const MixtureInputs in(type);
  for (const auto& matrices :
       std::vector<std::vector<std::string>>{{"gate_proj", "up_proj", "down_proj"}, {"up_proj"}, {"down_proj"}}) {
    const Setting setting{.matrices = matrices};
    Layer grouped(setting, false, type, at::kFloat), alone(setting, true, type, at::kFloat);
    const Tensors a = run(grouped, in, {}), b = run(alone, in, {});
    expect_alike(a, b, 3 * ops::test::tolerance(type));
    int64_t without = 0;
    for (const at::Tensor& t : a) without += !t.defined();
    EXPECT_EQ(without, static_cast<int64_t>(2 * matrices.size())) << "the factors of the expert without tokens";
  }
}

TEST_P(ExpertLoras, SeveralAdaptersEachForItsTokens) {
  const at::ScalarType type = GetParam();
  const MixtureInputs in(type);
  const Setting setting{.adapters = {"one", "two"}};
  Layer grouped(setting, false, type, type), alone(setting, true, type, type);
  const auto tokens = [](int64_t begin, int64_t end) { return at::arange(begin, end, at::kLong).to(device().device); };
  for (const int64_t first : {int64_t{7}, kTokens}) {
    Step s;
    s.routed = true;
    s.adapters = {{"one", tokens(0, first)},
                  {"two", tokens(std::min(first, kTokens - 5), kTokens - 4)},
                  {"another", tokens(1, 3)}};
    if (first == kTokens) s.adapters.resize(1);
    at::NoGradGuard no_grad;
    expect_close(grouped.experts(in.x, in.weight, in.expert, s), alone.experts(in.x, in.weight, in.expert, s),
                 3 * ops::test::tolerance(type), str(first));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ExpertLoras, ::testing::Values(at::kFloat, at::kBFloat16), ops::test::dtype_of);

TEST(ExpertLoraDropout, SameSeedSameMaskAndTheGradientUsesIt) {
  Layer layer({.dropout = 0.4}, false, at::kFloat, at::kFloat);
  const MixtureInputs in(at::kFloat);
  Step s;
  set_training(s, {.dropout_seed = 11});
  const Tensors a = run(layer, in, s), b = run(layer, in, s);
  expect_alike(a, b, 0);
  Step other = s;
  set_training(other, {.dropout_seed = 12});
  EXPECT_GT(ops::test::error(run(layer, in, other)[0], a[0]), 1e-2);
  // A step along the gradient of each factor changes the result by the square of its length.
  const at::Tensor into = placed(normal({kTokens, kHidden}, 103), at::kFloat);
  const auto value = [&] {
    return (exact(layer.experts(in.x, in.weight, in.expert, s)) * exact(into)).sum().item<double>();
  };
  const auto factors = layer.factors();
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < factors.size(); ++i) {
    const at::Tensor d = a[3 + i];
    if (!d.defined()) continue;
    const double length = exact(d).norm().item<double>(), step = 1e-2;
    at::Tensor factor = factors[i].second;
    const at::Tensor before = factor.clone();
    factor.add_(d, step / length);
    const double up = value();
    factor.copy_(before).add_(d, -step / length);
    const double slope = (up - value()) / (2 * step);
    factor.copy_(before);
    EXPECT_NEAR(slope, length, 2e-2 * length + 1e-3) << factors[i].first;
  }
}

TEST(ExpertLoraRules, WhatCannotBeGroupedIsSeen) {
  const auto matrices = [](Layer& layer, const char* name) {
    ExpertMatrices out;
    layer.experts.visit_modules([&](const std::string& n, Module& m) {
      if (auto* l = dynamic_cast<Linear*>(&m); l && n.ends_with(name)) out.push_back(l);
    });
    return out;
  };
  Layer plain({}, false, at::kFloat, at::kFloat), uneven({}, true, at::kFloat, at::kFloat);
  EXPECT_TRUE(can_be_grouped(matrices(plain, "gate_proj")));
  EXPECT_FALSE(can_be_grouped(matrices(uneven, "gate_proj")));
  EXPECT_TRUE(can_be_grouped(matrices(uneven, "up_proj")));
  const auto change = [&](const Lora::Spec& spec) {
    Layer layer({.matrices = {}}, false, at::kFloat, at::kFloat);
    const ExpertMatrices all = matrices(layer, "down_proj");
    for (size_t e = 0; e < all.size(); ++e)
      all[e]->attach("default",
                     std::make_unique<Lora>(
                         e == 2 ? spec : Lora::Spec{.in = kFfn, .out = kHidden, .rank = 4, .alpha = 8}, nullptr));
    return can_be_grouped(all);
  };
  EXPECT_TRUE(change({.in = kFfn, .out = kHidden, .rank = 4, .alpha = 8}));
  EXPECT_FALSE(change({.in = kFfn, .out = kHidden, .rank = 2, .alpha = 4}));
  EXPECT_FALSE(change({.in = kFfn, .out = kHidden, .rank = 4, .alpha = 9}));
  EXPECT_FALSE(change({.in = kFfn, .out = kHidden, .rank = 4, .alpha = 8, .dora = true}));
}

}  // namespace
}  // namespace apus
