// SPDX-License-Identifier: Apache-2.0
// Whole quantised checkpoints: their logits and greedy tokens against the golden ones, the gradient that passes through
// a weight that is held quantised, adapters on top, and plain checkpoints that are quantised while they are loaded.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "nn/linear.h"
#include "ops/ops.h"
#include "ops/quantised.h"
#include "quant/bnb4.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

fs::path quantised_checkpoints() {
  const char* all = std::getenv("APUS_GOLDEN");
  return all ? fs::path(all) / "quant/checkpoints" : fs::path();
}

const std::vector<std::string> kQuantisedModels = {"qwen2_bnb_nf4",  "qwen2_gptq4_g32", "qwen2_gptq4_g32_desc_act",
                                                   "qwen2_awq4_g32", "qwen2_fp8_block", "qwen2_fp8_channel"};

// Of one sequence, all positions: [T, V].
at::Tensor quantised_logits(const Model& model, const at::Tensor& ids) {
  Step step = packed_step({static_cast<int>(ids.size(0))}, golden::device());
  return model.head(model.forward({ids.to(golden::device())}, step), step).to(at::kCPU);
}

int64_t quantised_weights_of(Model& model) {
  int64_t n = 0;
  model.visit([&](const std::string&, Param& p) { n += ops::is_quantised(p.data); });
  return n;
}

TEST(QuantisedCheckpoints, LogitsAndGreedyTokensAreTheGoldenOnes) {
  if (!fs::exists(quantised_checkpoints())) GTEST_SKIP() << "APUS_GOLDEN names no folder with quant/checkpoints";
  const at::NoGradGuard no_gradient;
  for (const std::string& name : kQuantisedModels) {
    SCOPED_TRACE(name);
    const auto dir = quantised_checkpoints() / name;
    const auto model = load_model(dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
    EXPECT_EQ(quantised_weights_of(*model), 14);
    model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
    const auto file = SafetensorsFile::open(dir / "golden.safetensors");
    const at::Tensor ids = file->tensor("input_ids").to(at::kLong), want = file->tensor("logits");
    for (int64_t row = 0; row < ids.size(0); ++row) {
      const at::Tensor got = quantised_logits(*model, ids[row]);
      EXPECT_LT(golden::max_abs(got, want[row]), 1e-4 * want.abs().max().item<double>());
      at::Tensor text = ids[row];
      const at::Tensor answer = file->tensor("greedy_new_ids")[row].to(at::kLong);
      for (int64_t i = 0; i < answer.size(0); ++i) {
        const at::Tensor next = quantised_logits(*model, text)[text.size(0) - 1].argmax();
        EXPECT_EQ(next.item<int64_t>(), answer[i].item<int64_t>()) << "token " << i;
        text = at::cat({text, next.reshape({1})});
      }
    }
  }
}

// A weight of several tiles, quantised here, beside the same weight made plain.
struct QuantisedPair {
  QuantisedPair(int64_t out, int64_t in, at::ScalarType type) {
    const at::Tensor wide = at::randn({out, in}) * 0.05;
    const quant::Shape shape{out, in};
    const auto pieces = quant::quantise_bnb4({wide.data_ptr<float>(), static_cast<size_t>(wide.numel())}, shape, {});
    quantised = ops::quantised_tensor(quant::open_bnb4({"layer", pieces}, shape), type, golden::device());
    plain = ops::plain(quantised);
  }
  at::Tensor quantised, plain;
};

TEST(QuantisedLinear, GivesAndTakesBackWhatItsPlainWeightWould) {
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{96, 64}, {2080, 1024}}) {
    const QuantisedPair w(out, in, at::kFloat);
    EXPECT_EQ(w.quantised.sizes(), w.plain.sizes());
    const at::Tensor bias = at::randn({out}).to(golden::device());
    std::vector<at::Tensor> y, dx, dbias;
    for (const at::Tensor& weight : {w.quantised, w.plain}) {
      at::Tensor x = at::arange(5 * in, at::kFloat).sin().reshape({5, in}).to(golden::device());
      at::Tensor b = bias.clone();
      x.set_requires_grad(true), b.set_requires_grad(true);
      const at::Tensor result = ops::linear(x, weight, b);
      (result * result).sum().backward();
      y.push_back(result.detach()), dx.push_back(x.grad()), dbias.push_back(b.grad());
    }
    const auto most = [](const at::Tensor& t) { return t.abs().max().item<float>(); };
    EXPECT_LT(golden::max_abs(y[0], y[1]), 1e-5 * most(y[1]));
    EXPECT_LT(golden::max_abs(dx[0], dx[1]), 1e-5 * most(dx[1]));
    EXPECT_LT(golden::max_abs(dbias[0], dbias[1]), 1e-5 * most(dbias[1]));
  }
}

// Alone or among others, the same bits.
TEST(QuantisedLinear, ARowDoesNotDependOnOthers) {
  if (!golden::device().is_cpu()) GTEST_SKIP() << "products of a device's own library: ours add in one order";
  const QuantisedPair w(2080, 1024, at::kBFloat16);
  const at::Tensor x = at::randn({33, 1024}).to(at::kBFloat16).to(golden::device());
  const at::Tensor all = ops::linear(x, w.quantised, {});
  for (const int64_t row : {0, 17, 32})
    EXPECT_TRUE(at::equal(ops::linear(x.narrow(0, row, 1), w.quantised, {})[0], all[row])) << row;
}

std::unique_ptr<Model> made_quantised(const fs::path& dir, const quant::Wish& wish, at::ScalarType type = at::kFloat) {
  const Json config = read_model_config(dir);
  auto model = make_model(config);
  const auto quantised = quantised_weights(config, wish, dir);
  load_weights(*model, TensorFolder(dir), {.dtype = type, .device = golden::device(), .quantised = quantised.get()});
  return model;
}

// Experts that are tensors of their own: held where the device multiplies by codes, adapters on them trained.
TEST(QuantisedCheckpoints, ExpertsStayQuantised) {
  if (!ops::multiplies_codes(golden::device(), at::kBFloat16)) GTEST_SKIP() << "this device holds experts plain";
  const auto dir = golden::models() / "qwen3_moe_norm/checkpoint";
  quant::Wish wish;
  wish.method = "fp8";
  const auto model = made_quantised(dir, wish, at::kBFloat16), plain = made_quantised(dir, wish, at::kBFloat16);
  int64_t stacks = 0;
  std::map<std::string, at::Tensor> values;
  model->visit([&](const std::string& name, Param& p) {
    stacks += ops::is_quantised(p.data) && !p.pieces.empty();
    EXPECT_LT(ops::held_bytes(p.data), p.pieces.empty() ? INT64_MAX : 2 * c10::multiply_integers(p.full)) << name;
    values[name] = ops::plain(p.data);
    EXPECT_EQ(values[name].sizes(), at::IntArrayRef(p.full)) << name;
  });
  EXPECT_EQ(stacks, 2 * model->shape().layers);
  plain->visit([&](const std::string& name, Param& p) { p.data = values.at(name).to(golden::device()); });
  LoraConfig config;
  config.r = 4, config.alpha = 8, config.target_modules = {"gate_proj", "down_proj"};
  const at::Tensor ids = at::arange(1, 25, at::kLong);
  std::vector<at::Tensor> logits;
  std::vector<double> gradients;
  for (Model* each : {model.get(), plain.get()}) {
    make_adapter(*each, config, 7);
    each->visit([](const std::string&, Param& p) {
      if (p.trainable) p.data.set_requires_grad(true);
    });
    logits.push_back(quantised_logits(*each, ids).to(at::kFloat));
    (logits.back() * logits.back()).sum().backward();
    double sum = 0;
    each->visit([&](const std::string& name, Param& p) {
      const bool factor = p.trainable && name.find("lora_B") != std::string::npos;
      // An expert without tokens has none.
      if (factor && p.data.grad().defined()) sum += p.data.grad().to(at::kCPU, at::kDouble).norm().item<double>();
    });
    gradients.push_back(sum);
  }
  EXPECT_LT((logits[0] - logits[1]).norm().item<double>(), 0.02 * logits[1].norm().item<double>());
  EXPECT_NEAR(gradients[0], gradients[1], 0.03 * gradients[1]);
}

// The errors that roundings to so many levels make, relative to a weight's own size.
TEST(QuantisedCheckpoints, PlainOnesAreQuantisedWhileTheyAreLoaded) {
  const auto dir = golden::models() / "qwen2/checkpoint";
  const TensorFolder source(dir);
  struct Made {
    const char* method;
    int64_t bits;
    double least, most;
  };
  for (const auto& [method, bits, least, most] :
       {Made{"bnb", 4, 0.06, 0.12}, {"hqq", 4, 0.05, 0.12}, {"fp8", 8, 0.015, 0.035}, {"bnb", 8, 0.003, 0.012}}) {
    SCOPED_TRACE(str(method, " ", bits));
    quant::Wish wish;
    wish.method = method, wish.bits = bits;
    const auto model = made_quantised(dir, wish);
    EXPECT_EQ(quantised_weights_of(*model), 7 * model->shape().layers);
    model->visit([&, low = least, high = most](const std::string& name, Param& p) {
      if (!ops::is_quantised(p.data)) return;
      const at::Tensor want = source.tensor(name).to(at::kFloat);
      const double error = (ops::plain(p.data).to(at::kCPU) - want).norm().item<float>() / want.norm().item<float>();
      EXPECT_GT(error, low) << name;
      EXPECT_LT(error, high) << name;
    });
  }
  EXPECT_FALSE(quantised_weights(read_model_config(dir), {}, dir));
}

TEST(QuantisedCheckpoints, AdaptersTrainOnTop) {
  const auto dir = golden::models() / "qwen2/checkpoint";
  quant::Wish wish;
  wish.method = "bnb", wish.bits = 4;
  const at::Tensor ids = at::arange(1, 25, at::kLong);
  for (const bool dora : {false, true}) {
    const auto model = made_quantised(dir, wish);
    LoraConfig config;
    config.r = 4, config.alpha = 8, config.dora = dora;
    config.target_modules = {"q_proj", "down_proj"};
    make_adapter(*model, config, 7);
    {
      const at::NoGradGuard no_gradient;  // the second factor is zero: nothing has changed
      const auto plain = made_quantised(dir, wish);
      EXPECT_LT(golden::max_abs(quantised_logits(*model, ids), quantised_logits(*plain, ids)), 1e-4) << dora;
    }
    model->visit([](const std::string&, Param& p) {
      if (p.trainable) p.data.set_requires_grad(true);
    });
    const at::Tensor logits = quantised_logits(*model, ids);
    (logits * logits).sum().backward();
    int64_t with_gradient = 0;
    model->visit([&](const std::string& name, Param& p) {
      if (!p.trainable || name.find("lora_B") == std::string::npos) return;
      EXPECT_GT(p.data.grad().abs().sum().item<float>(), 0) << name;
      ++with_gradient;
    });
    EXPECT_EQ(with_gradient, 2 * model->shape().layers);
  }
  const auto model = made_quantised(dir, wish);
  LoraConfig config;
  config.target_modules = {"q_proj"}, config.init = "pissa";
  EXPECT_NE(test::refusal(Fault::Usage, [&] { make_adapter(*model, config, 7); }).find("is quantised"),
            std::string::npos);
}

}  // namespace
}  // namespace apus
