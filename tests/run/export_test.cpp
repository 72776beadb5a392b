// SPDX-License-Identifier: Apache-2.0
// apus export of mixtures as quantised checkpoints, and of quantised checkpoints as plain ones.
#include "cli/export.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "checkpoint/weights.h"
#include "run/runner.h"
#include "tensor/stored_folder.h"
#include "tests/folder.h"
#include "tests/run/tiny_model.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kLayers = 3, kExperts = 8;  // of the preset

struct Exports : ::testing::Test {
  const test::Folder folder;
  const fs::path plain = folder.path / "plain";

  void make_mixture() const {
    InitOptions o;
    o.preset = "tiny-moe", o.output_dir = plain.string(), o.torch_dtype = "float32", o.common.seed = 3;
    ASSERT_EQ(apus_run_command("init", &o), 0);
  }
  ExportOptions export_of(const fs::path& model, const char* name) const {
    ExportOptions o;
    o.model = o.named = model.string(), o.output_dir = (folder.path / name).string();
    o.max_shard_bytes = int64_t{1} << 30;
    return o;
  }
  static at::Tensor logits_of(const fs::path& dir) {
    const at::NoGradGuard no_gradient;
    const auto model = load_model(dir, {.dtype = at::kFloat});
    Step step = packed_step({40}, at::kCPU);
    return model->head(model->forward(at::arange(7, 47, at::kLong), step), step);
  }
  static double distance(const at::Tensor& a, const at::Tensor& b) {
    return (a - b).norm().item<double>() / b.norm().item<double>();
  }
};

// What others take for quantised is, and what is not is listed by its name.
TEST_F(Exports, TheExpertsOfAMixtureAreQuantisedToo) {
  make_mixture();
  for (const auto& [method, bits, most] : {std::tuple{"fp8", 8, 0.1}, {"bnb", 8, 0.1}, {"bnb", 4, 0.4}}) {
    SCOPED_TRACE(str(method, bits));
    const std::string name = str(method, bits);
    ExportOptions o = export_of(plain, name.c_str());
    o.quantise.method = method, o.quantise.bits = bits;
    ASSERT_EQ(apus_run_command("export", &o), 0);
    const StoredFolder files(o.output_dir);
    int64_t experts = 0;
    for (const auto& [tensor, stored] : files.all()) {
      if (tensor.find(".experts.") == std::string::npos || !tensor.ends_with("_proj.weight")) continue;
      ++experts;
      EXPECT_NE(stored.type, DiskType::F32) << tensor;
    }
    EXPECT_EQ(experts, kLayers * kExperts * 3);
    const Json config = read_model_config(o.output_dir)["quantization_config"];
    const Json listed =
        config[config.contains("modules_to_not_convert") ? "modules_to_not_convert" : "llm_int8_skip_modules"];
    EXPECT_EQ(listed,
              Json({"lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate", "model.layers.2.mlp.gate"}));
    EXPECT_LT(distance(logits_of(o.output_dir), logits_of(plain)), most);
  }
}

// Fused kernels want one form for all experts of a layer.
TEST_F(Exports, ExpertsThatMetNoRowAreRounded) {
  make_mixture();
  const fs::path rows = folder.path / "rows.jsonl";
  write_file_atomic(
      rows,
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  for (const char* method : {"gptq", "awq"}) {
    SCOPED_TRACE(method);
    ExportOptions o = export_of(plain, method);
    o.quantise.method = method, o.quantise.bits = 4, o.group_size = 32;
    o.data.dataset = {rows.string()}, o.prompt.max_length = 32, o.data.split_dataset_ratio = 0;
    ASSERT_EQ(apus_run_command("export", &o), 0);
    const StoredFolder files(o.output_dir);
    int64_t experts = 0;
    for (const auto& [tensor, stored] : files.all())
      experts += tensor.find(".experts.") != std::string::npos && tensor.ends_with(".qweight");
    EXPECT_EQ(experts, kLayers * kExperts * 3);
    EXPECT_LT(distance(logits_of(o.output_dir), logits_of(plain)), 0.6);
  }
}

// The very numbers that were held quantised, for programs that read plain ones.
TEST_F(Exports, QuantisedWeightsAreMadePlain) {
  make_mixture();
  ExportOptions quantise = export_of(plain, "fp8");
  quantise.quantise.method = "fp8";
  ASSERT_EQ(apus_run_command("export", &quantise), 0);
  const fs::path held = quantise.output_dir;
  ExportOptions anew = export_of(held, "again");
  anew.to_hf = true, anew.torch_dtype = "float32";
  ASSERT_EQ(apus_run_command("export", &anew), 0);
  EXPECT_FALSE(read_model_config(anew.output_dir).contains("quantization_config"));
  EXPECT_EQ(StoredFolder(anew.output_dir).all().size(), StoredFolder(plain).all().size());
  EXPECT_LT(distance(logits_of(anew.output_dir), logits_of(held)), 1e-6);
  ExportOptions gguf = export_of(held, "held.gguf");
  gguf.to_gguf = "F32";
  ASSERT_EQ(apus_run_command("export", &gguf), 0);
  EXPECT_TRUE(fs::is_regular_file(gguf.output_dir));
  EXPECT_FALSE(fs::exists(gguf.output_dir + ".plain.tmp"));
}

}  // namespace
}  // namespace apus
