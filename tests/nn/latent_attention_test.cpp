// SPDX-License-Identifier: Apache-2.0
// Latent attention over the cache, where its matrices are applied to queries and results, against the keys and values
// that training makes; with adapters on the matrix that makes them.
#include "nn/latent_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include "checkpoint/weights.h"
#include "nn/lora.h"
#include "ops/quantised.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

// Both ways of the same tokens; `prepared`: as in inference.
void expect_the_same(Model& model, Step step, bool prepared, const char* what) {
  constexpr int32_t kTokens = 9;
  const at::Device device = golden::device();
  const at::Tensor ids = golden::ids_tensor({5, 9, 3, 7, 11, 2, 8, 4, 6}, device);
  Step plain = step;
  const at::Tensor made = model.forward(ids, plain);
  if (prepared) model.visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
  KvCache cache(cache_spec(model.shape(), 3, 4), at::TensorOptions().device(device));
  step.cache = &cache;
  step.slot = at::arange(kTokens, at::kLong).to(device);
  step.block_table = at::arange(3, at::kInt).view({1, 3}).to(device);
  EXPECT_LT(golden::max_abs(model.forward(ids, step), made), 2e-5) << what;
}

TEST(LatentAttention, TheCacheGivesWhatMadeKeysGive) {
  c10::AutoGradMode no_grad(false);
  const at::Device device = golden::device();
  for (const bool prepared : {false, true}) {
    const auto model = load_model(golden::models() / "deepseek_v3/checkpoint", {.dtype = at::kFloat, .device = device});
    expect_the_same(*model, packed_step({9}, device), prepared, "plain");
    model->visit_modules([&](const std::string& name, Module& m) {
      if (!name.ends_with(".kv_b_proj")) return;
      auto& layer = dynamic_cast<Linear&>(m);
      auto lora = std::make_unique<Lora>(Lora::Spec{layer.spec().in, layer.spec().out, 3, 6}, nullptr);
      for (Param* p : {&lora->a(), &lora->b()}) p->data = (at::randn(p->full) * 0.5).to(device);
      layer.attach("one", std::move(lora));
    });
    expect_the_same(*model, packed_step({9}, device), prepared, "adapted");
    Step routed = packed_step({9}, device);
    routed.routed = true;
    expect_the_same(*model, routed, prepared, "without its adapter");
    routed.adapters = {{"one", golden::ids_tensor({0, 1, 2, 3, 4, 5, 6, 7, 8}, device)}};
    expect_the_same(*model, routed, prepared, "all rows through it");
  }
}

// Whose matrix is made plain for the queries, and multiplied as it is held for the keys.
TEST(LatentAttention, TheCacheGivesTheSameOfQuantisedWeights) {
  c10::AutoGradMode no_grad(false);
  const at::Device device = golden::device();
  const auto dir = golden::models() / "deepseek_v3/checkpoint";
  const Json config = read_model_config(dir);
  for (const auto& [method, bits] : {std::pair{"bnb", 4}, {"bnb", 8}, {"fp8", 8}, {"hqq", 4}}) {
    quant::Wish wish;
    wish.method = method, wish.bits = bits;
    const auto quantised = quantised_weights(config, wish, dir);
    for (const bool prepared : {false, true}) {
      const auto model = make_model(config);
      load_weights(*model, TensorFolder(dir), {.dtype = at::kFloat, .device = device, .quantised = quantised.get()});
      int64_t held = 0;
      model->visit([&](const std::string& name, Param& p) {
        held += name.ends_with("kv_b_proj.weight") && ops::is_quantised(p.data);
      });
      EXPECT_EQ(held, model->shape().layers);
      expect_the_same(*model, packed_step({9}, device), prepared, method);
      model->visit_modules([&](const std::string& name, Module& m) {
        if (!name.ends_with(".kv_b_proj")) return;
        auto& layer = dynamic_cast<Linear&>(m);
        auto lora = std::make_unique<Lora>(Lora::Spec{layer.spec().in, layer.spec().out, 3, 6}, nullptr);
        for (Param* p : {&lora->a(), &lora->b()}) p->data = (at::randn(p->full) * 0.5).to(device);
        layer.attach("one", std::move(lora));
      });
      expect_the_same(*model, packed_step({9}, device), prepared, "adapted");
    }
  }
}

}  // namespace
}  // namespace apus
