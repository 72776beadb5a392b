// SPDX-License-Identifier: Apache-2.0
// What must not change the loss and the gradients: how a step is cut into micro-batches, the order of sequences in a
// pack, and whether layers are kept or recomputed. In f32; sums in another order differ by rounding only.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>

#include <numeric>

#include "checkpoint/adapter.h"
#include "nn/moe.h"
#include "nn/training_step.h"
#include "tests/train/training.h"

namespace apus {
namespace {

using golden::Case;
using golden::Packed;

struct Gradients {
  double loss = 0;
  std::map<std::string, at::Tensor> of;
};

Gradients gradients(Model& model, const std::vector<Packed>& parts, const Forward& forward, uint64_t seed = 0) {
  const auto params = golden::trainable(model);
  for (const NamedParam& p : params) p.tensor.mutable_grad().reset();
  Sft sft({});
  Actors actors{.policy = model};
  double total = 0;
  std::vector<Batch> batches;
  for (const Packed& p : parts)
    batches.push_back(golden::batch_of(p).to(golden::device())), total += sft.count(batches.back());
  Gradients out;
  for (Batch& b : batches) {
    set_training(b.step, {.dropout_seed = seed});
    const Loss loss = sft.loss(actors, b, forward);
    loss.sum.backward(at::full_like(loss.sum, 1 / total));
    out.loss += loss.sum.item<double>() / total;
  }
  for (const NamedParam& p : params)
    if (p.tensor.grad().defined()) out.of[p.name] = p.tensor.grad().clone();
  return out;
}

// Largest difference over all parameters, relative to the parameter's gradient.
double distance(const Gradients& a, const Gradients& b) {
  EXPECT_EQ(a.of.size(), b.of.size());
  double worst = std::fabs(a.loss - b.loss);
  for (const auto& [name, grad] : a.of)
    worst = std::max(worst, (grad - b.of.at(name)).norm().item<double>() / std::max(1e-6, grad.norm().item<double>()));
  return worst;
}

TEST(Invariance, MicroBatchSplitAndPackingOrder) {
  const Case c("train_qwen2");
  const auto model = golden::owned_model(c.dir / "checkpoint");
  const Packed whole = golden::train_batches(c)[0];
  const Gradients reference = gradients(*model, {whole}, {});
  const auto row = [&](size_t i) { return golden::rows_of(whole, i, 1); };
  EXPECT_LT(distance(reference, gradients(*model, {golden::rows_of(whole, 0, 2), golden::rows_of(whole, 2, 2)}, {})),
            1e-5);
  EXPECT_LT(distance(reference, gradients(*model, {row(0), row(1), row(2), row(3)}, {})), 1e-5);
  Packed shuffled;
  for (const size_t i : {2, 0, 3, 1}) {
    const Packed r = row(i);
    shuffled.lengths.push_back(r.lengths[0]);
    shuffled.flat.insert(shuffled.flat.end(), r.flat.begin(), r.flat.end());
    shuffled.labels.insert(shuffled.labels.end(), r.labels.begin(), r.labels.end());
  }
  EXPECT_LT(distance(reference, gradients(*model, {shuffled}, {})), 1e-5);
}

TEST(Invariance, RecomputeIsExact) {
  const Case c("train_qwen2");
  const auto model = golden::owned_model(c.dir / "checkpoint");
  const Packed whole = golden::train_batches(c)[0];
  const Gradients reference = gradients(*model, {whole}, {});
  for (const int64_t layers : {1, 2})
    EXPECT_EQ(distance(reference, gradients(*model, {whole}, {.recomputed_layers = layers})), 0);
}

// Every way to keep some results and make the others again.
std::vector<Forward> selective_ways(double neftune_alpha = 0) {
  std::vector<Forward> ways;
  for (const bool attention : {false, true})
    for (const bool feed_forward : {false, true})
      for (const int64_t layers : {0, 1, 2})
        ways.push_back({.recomputed_layers = layers,
                        .selective = Forward::Selective{.attention = attention, .feed_forward = feed_forward},
                        .neftune_alpha = neftune_alpha,
                        .watch = {}});
  return ways;
}

TEST(Invariance, SelectiveRecomputeIsExact) {
  for (const char* name : {"train_qwen2", "qwen3_moe_norm", "qwen3"}) {
    const Case c(name);
    const auto model = golden::owned_model(c.dir / "checkpoint");
    const Packed whole = std::string(name) == "train_qwen2" ? golden::train_batches(c)[0] : golden::unpad(c, "right");
    const Gradients reference = gradients(*model, {whole}, {});
    for (const Forward& way : selective_ways())
      EXPECT_EQ(distance(reference, gradients(*model, {whole}, way)), 0) << name;
  }
}

TEST(Invariance, SelectiveRecomputeIsExactWithAdapters) {
  const Case c("lora_qwen2");
  const Packed whole = golden::train_batches(c, "train/")[0];
  for (const bool dora : {false, true}) {
    const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kBFloat16, .device = golden::device()});
    LoraConfig lora{.r = 4,
                    .alpha = 8,
                    .dropout = 0.3,
                    .target_modules = {"q_proj", "o_proj", "gate_proj", "down_proj"},
                    .init = "false"};
    lora.dora = dora;
    make_adapter(*model, lora, 5);
    const Gradients reference = gradients(*model, {whole}, {.neftune_alpha = 5}, 99);
    for (const Forward& way : selective_ways(5))
      EXPECT_EQ(distance(reference, gradients(*model, {whole}, way, 99)), 0) << dora;
  }
}

TEST(Invariance, RecomputeIsExactWithDropoutAndNoiseAndFrozenEmbeddings) {
  const Case c("lora_qwen2");
  const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  make_adapter(
      *model,
      {.r = 4, .alpha = 8, .dropout = 0.3, .target_modules = {"q_proj", "v_proj", "down_proj"}, .init = "false"}, 5);
  const Packed whole = golden::train_batches(c, "train/")[0];
  const Gradients reference = gradients(*model, {whole}, {.neftune_alpha = 5}, 99);
  EXPECT_EQ(reference.of.size(), 12u);
  EXPECT_EQ(distance(reference, gradients(*model, {whole}, {.recomputed_layers = 2, .neftune_alpha = 5}, 99)), 0);
  EXPECT_GT(distance(reference, gradients(*model, {whole}, {.recomputed_layers = 2, .neftune_alpha = 5}, 98)), 1e-3);
  EXPECT_GT(distance(reference, gradients(*model, {whole}, {.recomputed_layers = 2}, 99)), 1e-3);
}

// The balance loss of a mixture of experts through the trainer's own path, kept and recomputed.
TEST(Invariance, RouterLossWithRecompute) {
  const Case c("qwen3_moe_norm");
  const auto& numbers = c.json.at("cases").at("right");
  for (const int64_t layers : {0, 8}) {
    Json hyper = {{"betas", {0.9, 0.95}}, {"eps", 1e-8},        {"grad_accum", 1},        {"lr", 0.0},
                  {"max_grad_norm", 1.0}, {"no_decay", "none"}, {"schedule", "constant"}, {"total_steps", 1},
                  {"warmup_steps", 0},    {"weight_decay", 0.0}};
    TrainerOptions options;
    options.router_aux_loss_coef = numbers.at("router_aux_loss_coef");
    options.forward.recomputed_layers = layers;
    golden::TestRun run(golden::owned_model(c.dir / "checkpoint"), hyper, {golden::unpad(c, "right")}, options);
    const TrainResult result = run.trainer->run();
    EXPECT_NEAR(result.log_history[0]["loss"].get<double>(), numbers.at("loss_total").get<double>(), 2e-5);
    EXPECT_NEAR(result.log_history[0]["aux_loss"].get<double>(), numbers.at("aux_loss").get<double>(), 2e-5);
    const double norm = c.json.at("grad").at("right").at("total_norm");
    EXPECT_NEAR(result.log_history[0]["grad_norm"].get<double>(), norm, 1e-3 * norm);
  }
}

}  // namespace
}  // namespace apus
