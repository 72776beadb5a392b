// SPDX-License-Identifier: Apache-2.0
// A model's layers quantised with the help of rows, one by one.
#include "checkpoint/calibrate.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/golden.h"

namespace apus {
namespace {

struct Calibrated {
  CalibrationReport report;
  std::set<std::string> quantised, changed;
};

std::vector<std::vector<int64_t>> some_blocks(int64_t vocabulary) {
  std::vector<std::vector<int64_t>> blocks(5, std::vector<int64_t>(48));
  int64_t next = 7;
  for (auto& block : blocks)
    for (int64_t& id : block) id = next = (next * 31 + 11) % std::min<int64_t>(vocabulary, 97);
  return blocks;
}

Calibrated calibrated(const std::string& name, CalibrationSpec spec) {
  const auto model = load_model(golden::models() / name / "checkpoint", {.dtype = at::kBFloat16});
  spec.blocks = spec.judged = some_blocks(model->shape().vocab), spec.device = golden::device(), spec.batch = 2;
  spec.skip = [](const std::string& layer) { return layer.ends_with("mlp.gate"); };
  Calibrated out;
  int64_t next = 0;
  out.report = calibrate(*model, spec, [&](int64_t layer, const CalibratedLayer& made) {
    EXPECT_EQ(layer, next++);
    for (const auto& [linear, pieces] : made.quantised) out.quantised.insert(linear);
    for (const auto& [param, numbers] : made.changed) out.changed.insert(param);
  });
  EXPECT_EQ(next, model->shape().layers);
  // Nothing is left in memory but what stands outside the layers.
  model->visit([&](const std::string& param, Param& p) {
    EXPECT_EQ(p.data.defined(),
              param.find(".layers.") == std::string::npos && param.find("model.norm") == std::string::npos)
        << param;
  });
  return out;
}

// Losses: the model is one of random weights, whose perplexities are no measure.
void expect_near(const CalibrationReport& report, double share) {
  EXPECT_GT(report.perplexity_before, 1);
  EXPECT_NEAR(std::log(report.perplexity), std::log(report.perplexity_before),
              share * std::log(report.perplexity_before));
}

TEST(Calibrate, GptqGoesThroughTheLayersInTheOrderOfTheirInputs) {
  const Calibrated eight = calibrated("qwen2", {.form = {8, 32, false}});
  EXPECT_TRUE(eight.changed.empty());
  EXPECT_EQ(eight.quantised.count("model.layers.1.mlp.down_proj"), 1u);
  EXPECT_EQ(eight.quantised.size() % 7, 0u);
  const std::vector<std::vector<std::string>> groups = {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                                        {"self_attn.o_proj"},
                                                        {"mlp.gate_proj", "mlp.up_proj"},
                                                        {"mlp.down_proj"}};
  EXPECT_EQ(eight.report.groups, groups);
  EXPECT_TRUE(eight.report.plain.empty());
  expect_near(eight.report, 0.01);
  expect_near(calibrated("qwen2", {.form = {4, 32, true}, .by_importance = true}).report, 0.08);
}

TEST(Calibrate, AwqScalesNormsAndUpProjections) {
  const Calibrated made = calibrated("qwen2", {.method = "awq", .form = {4, 32, false}});
  EXPECT_EQ(made.changed.count("model.layers.0.input_layernorm.weight"), 1u);
  EXPECT_EQ(made.changed.count("model.layers.0.post_attention_layernorm.weight"), 1u);
  // Queries share values, so that these cannot be scaled.
  EXPECT_EQ(made.changed.count("model.layers.0.self_attn.v_proj.bias"), 0u);
  expect_near(made.report, 0.08);
}

// Experts are multiplied together, and stay plain; so do layers of odd sides.
TEST(Calibrate, SaysWhatStaysPlain) {
  const Calibrated mixture = calibrated("qwen3_moe_norm", {.form = {4, 32, false}});
  for (const std::string& name : mixture.quantised) EXPECT_EQ(name.find(".experts."), std::string::npos) << name;
  EXPECT_EQ(mixture.quantised.count("model.layers.0.self_attn.q_proj"), 1u);
  const Calibrated odd = calibrated("phi3", {.form = {4, 32, false}});
  EXPECT_TRUE(odd.quantised.empty());
  EXPECT_FALSE(odd.report.plain.empty());
  EXPECT_EQ(odd.report.perplexity, odd.report.perplexity_before);
}

// Norms elsewhere, side by side, or counted from one; fused projections; latent attention; layers with a state.
TEST(Calibrate, EveryFamilysLayers) {
  for (const char* name : {"llama3", "gemma2", "cohere2", "olmo2", "phi3", "starcoder2", "deepseek_v3", "qwen3_next"}) {
    SCOPED_TRACE(name);
    const Calibrated awq = calibrated(name, {.method = "awq", .form = {4, -1, false}});
    EXPECT_FALSE(awq.quantised.empty());
    expect_near(awq.report, 0.1);
  }
}

}  // namespace
}  // namespace apus
