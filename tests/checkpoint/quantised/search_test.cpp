// SPDX-License-Identifier: Apache-2.0
// GPTQ and AWQ for one layer: against what the original programs find, and that they are worth their while.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/awq_search.h"
#include "checkpoint/calibrated_layer.h"
#include "checkpoint/gptq_search.h"
#include "quant/scheme.h"
#include "tests/golden.h"
#include "tests/quant/golden_quant.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::shared_ptr<SafetensorsFile> search_case(const std::string& name) {
  return SafetensorsFile::open(test::source_dir() / "tests/data/quant" / (name + ".safetensors"));
}

at::Tensor hessian_over(const at::Tensor& x_TI) {
  Hessian hessian;
  hessian.add(x_TI, 1);
  return hessian.matrix();
}

at::Tensor weight_of(const quant::Integers& integers, quant::Shape shape, const quant::GptqForm& form) {
  return numbers_of_matrix(*quant::open_gptq({"layer", quant::pack_gptq(integers, shape, form)}, shape, form));
}

double output_error(const at::Tensor& changed_OI, const at::Tensor& weight_OI, const at::Tensor& x_TI) {
  return (x_TI.matmul((changed_OI - weight_OI).t())).square().mean().item<double>();
}

TEST(GptqSearch, FindsTheIntegersOfTheOriginal) {
  const auto inputs = search_case("gptq_algorithm_inputs");
  const at::Tensor weight_OI = inputs->tensor("W"), hessian_II = hessian_over(inputs->tensor("X"));
  struct Golden {
    const char* name;
    int64_t group;
    bool symmetric, by_importance, fixed_groups;
  };
  const quant::Shape shape{weight_OI.size(0), weight_OI.size(1)};
  for (const Golden& g : {Golden{"plain", 32, true, false, false},
                          {"desc_act", 32, true, true, false},
                          {"desc_act_static", 32, true, true, true},
                          {"channel_asym", -1, false, false, false}}) {
    SCOPED_TRACE(g.name);
    const quant::GptqForm form{4, g.group, false};
    const quant::Integers got = round_by_gptq(weight_OI, hessian_II,
                                              {.form = form,
                                               .symmetric = g.symmetric,
                                               .by_importance = g.by_importance,
                                               .fixed_groups = g.fixed_groups,
                                               .damp = 0.01},
                                              "layer");
    const quant::Pieces mine = quant::pack_gptq(got, shape, form);
    const quant::Pieces want = golden::read_pieces(
        test::source_dir() / "tests/data/quant" / (std::string("gptq_algorithm_") + g.name + ".safetensors"), "layer.");
    for (const char* piece : {"scales", "g_idx", "qzeros"})
      EXPECT_EQ(std::memcmp(mine.at(piece).data, want.at(piece).data, static_cast<size_t>(want.at(piece).bytes)), 0)
          << piece;
    const at::Tensor a = weight_of(got, shape, form),
                     b = numbers_of_matrix(*quant::open_gptq({"layer", want}, shape, form));
    EXPECT_LE((a != b).sum().item<int64_t>(), weight_OI.numel() / 200);
  }
}

TEST(GptqSearch, ErrsLessThanRoundingAlone) {
  const auto inputs = search_case("gptq_algorithm_inputs");
  const at::Tensor weight_OI = inputs->tensor("W"), x_TI = inputs->tensor("X");
  const quant::Shape shape{weight_OI.size(0), weight_OI.size(1)};
  for (const int64_t bits : {2, 3, 4, 8}) {
    const quant::GptqForm form{bits, 32, false};
    const auto nearest = quant::round_to_integers({weight_OI.data_ptr<float>(), static_cast<size_t>(weight_OI.numel())},
                                                  shape, form, true);
    const auto found = round_by_gptq(weight_OI, hessian_over(x_TI), {.form = form}, "layer");
    EXPECT_LT(output_error(weight_of(found, shape, form), weight_OI, x_TI),
              output_error(weight_of(nearest, shape, form), weight_OI, x_TI))
        << bits << " bits";
  }
}

// An input that is never there gets zeros, whatever its weights were.
TEST(GptqSearch, DeadInputsGetZeros) {
  const at::Tensor weight_OI = at::randn({32, 64}), x_TI = at::randn({100, 64});
  x_TI.select(1, 5).zero_();
  const quant::GptqForm form{4, 32, false};
  const auto found = round_by_gptq(weight_OI, hessian_over(x_TI), {.form = form}, "layer");
  EXPECT_EQ(weight_of(found, {32, 64}, form).select(1, 5).abs().max().item<float>(), 0);
}

TEST(GptqSearch, HessiansOfParts) {
  const at::Tensor x_TI = at::randn({60, 32});
  Hessian parts;
  parts.add(x_TI.narrow(0, 0, 20), 1), parts.add(x_TI.narrow(0, 20, 40), 2);
  const at::Tensor all = x_TI.t().matmul(x_TI) * 2 / 3;
  EXPECT_LT(golden::max_abs(parts.matrix(), all), 1e-4);
}

TEST(GptqSearch, SaysWhatIsWrongWithAHessian) {
  const at::Tensor bad = at::full({32, 32}, std::numeric_limits<float>::infinity());
  const std::string text = test::refusal(Fault::Model, [&] {
    round_by_gptq(at::randn({32, 32}), bad, {.form = {4, 32, false}}, "model.layers.3.mlp.up_proj");
  });
  EXPECT_NE(text.find("model.layers.3.mlp.up_proj"), std::string::npos) << text;
  EXPECT_NE(text.find("not finite"), std::string::npos) << text;
}

TEST(AwqSearch, FindsTheScalesAndClipsOfTheOriginal) {
  const auto file = search_case("awq_search");
  const at::Tensor x_TI = file->tensor("X");
  const std::vector<at::Tensor> weights{file->tensor("W1"), file->tensor("W2")};
  const auto output = [&](const std::vector<at::Tensor>& w) { return x_TI.matmul(at::cat(w, 0).t()); };
  const at::Tensor was = output(weights);
  const AwqScales got = search_awq_scales(
      weights, x_TI.abs().mean(at::IntArrayRef{0}), 32,
      [&](const auto& w) { return (output(w) - was).square().mean().template item<double>(); }, "layer");
  EXPECT_EQ(got.best, file->tensor("best").item<int64_t>());
  EXPECT_LT(golden::max_abs(got.scale_I, file->tensor("scales")), 1e-5);
  const at::Tensor losses = file->tensor("losses");
  for (int64_t k = 0; k < losses.size(0); ++k)
    EXPECT_NEAR(got.losses[static_cast<size_t>(k)], losses[k].item<double>(), 1e-3 * losses[k].item<double>()) << k;
  EXPECT_LT(golden::max_abs(search_awq_clips(weights[0], x_TI, 32), file->tensor("clip_W1")), 1e-5);
}

TEST(AwqSearch, ClippingErrsNoMoreThanRoundingAlone) {
  const at::Tensor weight_OI = at::randn({24, 64}).pow(3), x_TI = at::randn({96, 64});
  const at::Tensor kept = clipped(weight_OI, search_awq_clips(weight_OI, x_TI, 32));
  // Of each group alone, which is what is sought.
  double with = 0, without = 0;
  for (const int64_t g : {0, 32}) {
    const at::Tensor x = x_TI.narrow(1, g, 32), w = weight_OI.narrow(1, g, 32);
    with += output_error(rounded_to_four_bits(kept, 32).narrow(1, g, 32), w, x);
    without += output_error(rounded_to_four_bits(weight_OI, 32).narrow(1, g, 32), w, x);
  }
  EXPECT_LE(with, without);
}

}  // namespace
}  // namespace apus
