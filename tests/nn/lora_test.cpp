// SPDX-License-Identifier: Apache-2.0
// LoRA, rsLoRA and DoRA against PEFT: logits, loss, gradients, merged weights;
// and what dropout and first values must hold.
#include "nn/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "base/random.h"
#include "checkpoint/adapter.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tensor/noise.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

using golden::Case;
using golden::max_abs;

class GoldenAdapter : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenAdapter()
      : c("lora_qwen2"),
        json(c.json["adapters"][GetParam()]),
        model(load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()})) {
    adapter = load_adapter(*model, c.dir / json["dir"].get<std::string>());
  }
  Case c;
  Json json;
  std::unique_ptr<Model> model;
  Adapter adapter;
};

TEST_P(GoldenAdapter, LogitsLossAndGradients) {
  const golden::Packed p = golden::unpad(c, "right");
  std::map<std::string, Param*> params;
  model->visit_modules([&](const std::string& name, Module& m) {
    if (auto* linear = dynamic_cast<Adaptable*>(&m))
      for (const auto& [adapter_name, delta] : linear->adapters())
        delta->visit([&](const std::string& n, Param& q) { params[n] = &q; }, "base_model.model." + name);
  });
  for (auto& [name, param] : params) param->data.set_requires_grad(true);
  Step step = packed_step(p.lengths, golden::device());
  const at::Tensor hidden = model->forward(golden::ids_tensor(p.flat, golden::device()), step);
  const at::Tensor expected = at::index_select(c.tensor(str(GetParam(), "/logits")).reshape({-1, model->shape().vocab}),
                                               0, golden::ids_tensor(p.place, at::kCPU));
  EXPECT_LT(max_abs(model->head(hidden, step).detach(), expected), 3e-4);
  const auto loss = ops::head_loss({hidden, model->head_weight()}, golden::ids_tensor(p.labels, golden::device()),
                                   at::ones({hidden.size(0)}, hidden.options()), {});
  double count = 0, sum = 0;
  for (const int64_t label : p.labels) count += label >= 0;
  EXPECT_NEAR(loss.loss_sum.item<double>() / count, json["loss"].get<double>(), 2e-5);
  loss.loss_sum.backward(at::full_like(loss.loss_sum, 1 / count));
  for (const auto& [name, norm] : json["grad_norms"].items()) {
    ASSERT_TRUE(params.count(name)) << name;
    const at::Tensor grad = params[name]->data.grad().to(at::kCPU);
    const double mine = grad.norm().item<double>(), theirs = norm.get<double>();
    EXPECT_NEAR(mine, theirs, 1e-3 * theirs) << name;
    sum += mine * mine;
    if (const std::string key = str(GetParam(), "/grad/", name); c.has(key)) {
      EXPECT_LT((grad - c.tensor(key)).norm().item<double>(), 1e-3 * theirs) << name;
    }
  }
  EXPECT_NEAR(std::sqrt(sum), json["total_grad_norm"].get<double>(), 1e-3 * std::sqrt(sum));
}

TEST_P(GoldenAdapter, MergedWeights) {
  merge_attached(*model, adapter);
  for (const auto& [name, sums] : json["merged_weight_sums"].items())
    model->visit([&, key = name](const std::string& n, Param& p) {
      if (n != key) return;
      EXPECT_NEAR(p.data.to(at::kCPU).to(at::kDouble).sum().item<double>(), sums["sum"].get<double>(), 2e-3) << n;
      EXPECT_NEAR(p.data.to(at::kCPU).to(at::kDouble).square().sum().item<double>(), sums["sum_sq"].get<double>(), 2e-3)
          << n;
      if (const std::string tensor = str(GetParam(), "/merged/", n); c.has(tensor)) {
        EXPECT_LT(max_abs(p.data, c.tensor(tensor)), 1e-5) << n;
      }
    });
  c10::AutoGradMode no_grad(false);
  const golden::Packed p = golden::unpad(c, "right");
  Step step = packed_step(p.lengths, golden::device());
  const at::Tensor logits = model->head(model->forward(golden::ids_tensor(p.flat, golden::device()), step), step);
  EXPECT_LT(max_abs(logits, at::index_select(c.tensor(str(GetParam(), "/logits")).reshape({-1, model->shape().vocab}),
                                             0, golden::ids_tensor(p.place, at::kCPU))),
            3e-4);
}

TEST_P(GoldenAdapter, SavedFilesEqualPefts) {
  const test::Folder folder;
  save_adapter(*model, adapter, folder.path, {});
  const auto mine = SafetensorsFile::open(folder.path / "adapter_model.safetensors"),
             theirs = SafetensorsFile::open(c.dir / json["dir"].get<std::string>() / "adapter_model.safetensors");
  ASSERT_EQ(mine->entries().size(), theirs->entries().size());
  for (const auto& [name, entry] : theirs->entries()) {
    ASSERT_TRUE(mine->entries().count(name)) << name;
    EXPECT_EQ(max_abs(mine->tensor(name), theirs->tensor(name)), 0) << name;
  }
  EXPECT_EQ(Json::parse(read_file(folder.path / "adapter_config.json")),
            Json::parse(read_file(c.dir / json["dir"].get<std::string>() / "adapter_config.json")));
}

INSTANTIATE_TEST_SUITE_P(Peft, GoldenAdapter, ::testing::Values("lora", "rslora", "dora"));

TEST(LoraInit, PissaAndOloraLeaveTheModelAsItWas) {
  const Case c("lora_qwen2");
  const golden::Packed p = golden::unpad(c, "right");
  c10::AutoGradMode no_grad(false);
  const at::Tensor expected =
      at::index_select(c.tensor("right/base_logits").reshape({-1, 320}), 0, golden::ids_tensor(p.place, at::kCPU));
  for (const char* how : {"true", "gaussian", "pissa", "pissa_niter_4", "olora"}) {
    auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
    const Adapter adapter =
        make_adapter(*model, {.r = 4, .alpha = 16, .target_modules = {"q_proj", "down_proj"}, .init = how}, 7);
    Step step = packed_step(p.lengths, golden::device());
    EXPECT_LT(max_abs(model->head(model->forward(golden::ids_tensor(p.flat, golden::device()), step), step), expected),
              3e-4)
        << how;
    // What is saved fits the plain base: at the start, the base itself.
    const test::Folder folder;
    save_adapter(*model, adapter, folder.path, {});
    auto plain = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
    load_adapter(*plain, folder.path);
    Step again = packed_step(p.lengths, golden::device());
    EXPECT_LT(
        max_abs(plain->head(plain->forward(golden::ids_tensor(p.flat, golden::device()), again), again), expected),
        3e-4)
        << how;
  }
}

TEST(LoraInit, PissaTakesTheLargestSingularValues) {
  Linear layer({.in = 24, .out = 16});
  layer.weight().data = normal_noise({16, 24}, 0, 1, 3);
  const at::Tensor before = layer.weight().data.clone();
  Lora lora({.in = 24, .out = 16, .rank = 4, .alpha = 8}, nullptr);
  init_lora(lora, layer, "pissa", 1, before.options());
  const at::Tensor s = before.to(at::kDouble).mm(before.to(at::kDouble).t()), left = layer.weight().data;
  EXPECT_LT(max_abs(left + lora.b().data.mm(lora.a().data) * 2, before), 1e-5);
  // Eckart-Young: nothing of rank 4 leaves less behind; the rest is orthogonal to what was taken.
  EXPECT_LT((lora.b().data.t().mm(left)).abs().max().item<double>(), 1e-4);
}

TEST(LoraDropout, SameSeedSameMaskAndTheGradientUsesIt) {
  Lora lora({.in = 32, .out = 8, .rank = 4, .alpha = 4, .dropout = 0.5, .id = 3}, nullptr);
  lora.a().data = normal_noise({4, 32}, 0, 1, 1).requires_grad_();
  lora.b().data = normal_noise({8, 4}, 0, 1, 2).requires_grad_();
  const at::Tensor x = normal_noise({5, 32}, 0, 1, 3).requires_grad_(), weight = normal_noise({8, 32}, 0, 1, 4);
  Step s;
  set_training(s, {.dropout_seed = 11});
  const auto run = [&] { return lora.apply(x, at::Tensor(at::linear(x, weight)), weight, s); };
  const at::Tensor y = run();
  EXPECT_EQ(max_abs(y.detach(), run().detach()), 0);
  set_training(s, {.dropout_seed = 12});
  EXPECT_GT(max_abs(y.detach(), run().detach()), 1e-3);
  set_training(s, {.dropout_seed = 0});
  const at::Tensor plain = at::linear(x, weight) + at::linear(at::linear(x, lora.a().data), lora.b().data);
  EXPECT_LT(max_abs(run().detach(), plain.detach()), 1e-4);

  // Gradients against the same sum composed of plain operators, with the mask made visible.
  set_training(s, {.dropout_seed = 11});
  const at::Tensor g = normal_noise({5, 8}, 0, 1, 5);
  (run() * g).sum().backward();
  const at::Tensor dx = x.grad().clone(), da = lora.a().data.grad().clone(), db = lora.b().data.grad().clone();
  x.mutable_grad().reset(), lora.a().data.mutable_grad().reset(), lora.b().data.mutable_grad().reset();
  const at::Tensor mask = dropped(at::ones({5, 32}), 0.5, mix(11, 3, 0)) * 2;
  ((at::linear(x, weight) + at::linear(at::linear(x * mask, lora.a().data), lora.b().data)) * g).sum().backward();
  EXPECT_LT(max_abs(dx, x.grad()), 1e-4);
  EXPECT_LT(max_abs(da, lora.a().data.grad()), 1e-4);
  EXPECT_LT(max_abs(db, lora.b().data.grad()), 1e-4);
}

// The head's factors for losses: of the adapters that the step gives each row, as the layer itself multiplies them.
TEST(LoraOfTheHead, FactorsFollowTheStepsRoutes) {
  Linear head({.in = 12, .out = 20});
  head.weight().data = normal_noise({20, 12}, 0, 1, 1);
  for (const char* name : {"one", "two"}) {
    auto lora = std::make_unique<Lora>(Lora::Spec{.in = 12, .out = 20, .rank = 3, .alpha = 6}, nullptr);
    lora->a().data = normal_noise({3, 12}, 0, 1, name[0]), lora->b().data = normal_noise({20, 3}, 0, 1, name[1]);
    head.attach(name, std::move(lora));
  }
  const at::Tensor x = normal_noise({5, 12}, 0, 1, 2);
  const auto logits = [&](const Step& s) {
    const ops::HeadFactors f = head.factors(x, s);
    const at::Tensor plain = at::linear(f.hidden_TD, f.weight_VD);
    return f.low_TR.defined() ? plain + at::linear(f.low_TR, f.low_VR) : plain;
  };
  const auto rows = [](std::vector<int64_t> list) { return at::tensor(list, at::kLong); };
  Step all, routed;
  routed.routed = true;
  routed.adapters = {{"one", rows({0, 3})}, {"two", rows({4})}, {"another", rows({1})}};
  Step single;
  single.routed = true, single.adapters = {{"two", rows({0, 1, 2, 3, 4})}};
  const Step none = all.without_adapters();
  at::NoGradGuard no_grad;
  for (const Step& s : {all, routed, single, none}) EXPECT_LT(max_abs(logits(s), head(x, s)), 1e-4);
  EXPECT_TRUE(logits(none).equal(at::linear(x, head.weight().data)));
  EXPECT_FALSE(head.factors(x, none).low_TR.defined());
  EXPECT_GT(max_abs(logits(none), logits(all)), 1e-2);
  EXPECT_EQ(max_abs(logits(routed).narrow(0, 1, 2), logits(none).narrow(0, 1, 2)), 0);
}

// The reference of an aligned run: the trained model without its adapters and without what training adds.
TEST(LoraOfTheHead, AReferencePassIsTheModelBelow) {
  const Case c("lora_qwen2");
  const golden::Packed p = golden::unpad(c, "right");
  const auto load = [&] { return load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()}); };
  const auto below = load(), model = load();
  make_adapter(*model, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "down_proj", "lm_head"}, .init = "false"}, 5);
  at::NoGradGuard no_grad;
  const auto ids = golden::ids_tensor(p.flat, golden::device());
  const auto logits = [&](const Model& m, Step s) {
    const ops::HeadFactors f = m.head_factors(m.forward(ids, s), s);
    return f.low_TR.defined() ? at::linear(f.hidden_TD, f.weight_VD) + at::linear(f.low_TR, f.low_VR)
                              : at::linear(f.hidden_TD, f.weight_VD);
  };
  Step step = packed_step(p.lengths, golden::device());
  set_training(step, {.dropout_seed = 7});
  EXPECT_EQ(step.without_adapters().training, nullptr);
  EXPECT_TRUE(logits(*model, step.without_adapters()).equal(logits(*below, step)));
  EXPECT_GT(max_abs(logits(*model, step), logits(*below, step)), 1e-3);
}

TEST(Noise, DropsTheShareAskedForInEveryType) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor kept = dropped(at::ones({501, 333}).to(type), 0.05, 42);
    EXPECT_NEAR(kept.to(at::kFloat).mean().item<double>(), 0.95, 0.002);
    EXPECT_EQ(dropped(at::ones({3}).to(type), 0.0, 1).to(at::kFloat).sum().item<double>(), 3);
  }
  // f16 takes the path of devices, by tensor operators: the same mask, whatever the device.
  EXPECT_TRUE(dropped(at::ones({501, 333}).to(at::kHalf), 0.05, 42)
                  .to(at::kFloat)
                  .equal(dropped(at::ones({501, 333}), 0.05, 42)));
  // No pattern along the rows: every column loses its share.
  const at::Tensor columns = dropped(at::ones({2000, 64}), 0.2, 9).mean(0);
  EXPECT_GT(columns.min().item<double>(), 0.75);
  EXPECT_LT(columns.max().item<double>(), 0.85);
}

}  // namespace
}  // namespace apus
