// SPDX-License-Identifier: Apache-2.0
// Streamed merging against PEFT's merged weights; several adapters; shards; an untied head; what does not fit.
#include "checkpoint/merge.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "checkpoint/adapter.h"
#include "tests/refusal.h"
#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;
using golden::max_abs;

// A base like the golden one, in f32.
fs::path f32_base(const Case& c, const Folder& folder) {
  const auto model = golden::owned_model(c.dir / "checkpoint");
  save_weights(*model, folder.path / "base", int64_t{1} << 30, at::kFloat);
  fs::copy_file(c.dir / "checkpoint/config.json", folder.path / "base/config.json");
  write_file_atomic(folder.path / "base/tokenizer_config.json", "{}");
  write_file_atomic(folder.path / "base/trainer_state.json", "{}");
  return folder.path / "base";
}

TEST(Merge, EqualsPeft) {
  const Case c("lora_qwen2");
  Folder folder;
  const fs::path base = f32_base(c, folder);
  for (const std::string name : {"lora", "rslora", "dora"}) {
    const MergeReport report =
        merge_adapters({.base = base, .parts = {{c.dir / ("adapter_" + name)}}, .output = folder.path / name});
    EXPECT_EQ(report.changed, 14);
    const TensorFolder merged(folder.path / name);
    for (const auto& [tensor, sums] : c.json["adapters"][name]["merged_weight_sums"].items()) {
      EXPECT_NEAR(merged.tensor(tensor).to(at::kDouble).square().sum().item<double>(), sums["sum_sq"].get<double>(),
                  2e-3)
          << tensor;
      const std::string key = name + "/merged/" + tensor;
      if (c.has(key)) {
        EXPECT_LT(max_abs(merged.tensor(tensor), c.tensor(key)), 1e-5) << key;
      }
    }
    EXPECT_TRUE(fs::exists(folder.path / name / "tokenizer_config.json"));
    EXPECT_FALSE(fs::exists(folder.path / name / "trainer_state.json"));
  }
}

TEST(Merge, TheRunsArgumentsGoWithTheModel) {
  const Case c("lora_qwen2");
  Folder folder;
  const fs::path base = f32_base(c, folder);
  // As in a hub's cache.
  fs::permissions(base / "tokenizer_config.json", fs::perms::owner_read | fs::perms::group_read);
  fs::copy(c.dir / "adapter_lora", folder.path / "adapter");
  write_file_atomic(folder.path / "adapter/args.json", R"({"system": "be brief"})");
  merge_adapters({.base = base, .parts = {{folder.path / "adapter"}}, .output = folder.path / "out"});
  EXPECT_EQ(read_file(folder.path / "out/args.json"), R"({"system": "be brief"})");
  EXPECT_NE(fs::status(folder.path / "out/tokenizer_config.json").permissions() & fs::perms::owner_write,
            fs::perms::none);
}

TEST(Merge, RoundsOnceAndShards) {
  const Case c("lora_qwen2");
  Folder folder;
  const MergeReport report = merge_adapters({.base = c.dir / "checkpoint",
                                             .parts = {{c.dir / "adapter_lora"}},
                                             .output = folder.path / "out",
                                             .max_shard = 50'000});
  EXPECT_GT(report.shards, 2);
  const TensorFolder merged(folder.path / "out"), base(c.dir / "checkpoint");
  EXPECT_EQ(merged.names().size(), base.names().size());
  const at::Tensor exact = c.tensor("lora/merged/model.layers.0.mlp.down_proj.weight"),
                   mine = merged.tensor("model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(mine.scalar_type(), at::kBFloat16);
  // bf16 keeps 8 bits: half a unit in the last place, and never two roundings.
  EXPECT_LE(((mine.to(at::kFloat) - exact).abs() / exact.abs().clamp_min(1e-30)).max().item<double>(),
            1.0 / 256 * 1.01);
  // f32 sums in another order may fall on the other side.
  EXPECT_LT((mine != exact.to(at::kBFloat16)).sum().item<int64_t>(), 3);
  EXPECT_NO_THROW(golden::owned_model(folder.path / "out"));
}

TEST(Merge, SeveralAdaptersWithWeights) {
  const Case c("lora_qwen2");
  Folder folder;
  const fs::path base = f32_base(c, folder);
  const auto merged = [&](const std::string& name, std::vector<MergePart> parts) {
    merge_adapters({.base = base, .parts = std::move(parts), .output = folder.path / name});
    return TensorFolder(folder.path / name).tensor("model.layers.1.self_attn.q_proj.weight").clone();
  };
  const at::Tensor w = TensorFolder(base).tensor("model.layers.1.self_attn.q_proj.weight").clone();
  const at::Tensor a = merged("a", {{c.dir / "adapter_lora"}}), b = merged("b", {{c.dir / "adapter_dora"}});
  const at::Tensor both = merged("both", {{c.dir / "adapter_lora", 0.25}, {c.dir / "adapter_dora", -0.5}});
  EXPECT_LT(max_abs(both, w + (a - w) * 0.25 - (b - w) * 0.5), 1e-5);
  EXPECT_LT(max_abs(merged("none", {{c.dir / "adapter_lora", 0.0}}), w), 1e-7);
}

TEST(Merge, ModulesToSaveAndTheUntiedHead) {
  const Case c("lora_qwen2");
  Folder folder;
  auto model = golden::owned_model(c.dir / "checkpoint");
  Adapter adapter = make_adapter(
      *model,
      {.r = 2, .alpha = 4, .target_modules = {"q_proj"}, .modules_to_save = {"embed_tokens", "norm"}, .init = "false"},
      1);
  {
    c10::AutoGradMode no_grad(false);
    model->visit([](const std::string& name, Param& p) {
      if (name == "model.embed_tokens.weight" || name == "model.norm.weight") p.data.mul_(1.5);
    });
  }
  save_adapter(*model, adapter, folder.path, {});
  merge_adapters(
      {.base = c.dir / "checkpoint", .parts = {{folder.path}}, .output = folder.path / "out", .dtype = at::kFloat});
  auto merged = golden::owned_model(folder.path / "out");
  EXPECT_EQ(Json::parse(read_file(folder.path / "out/config.json"))["tie_word_embeddings"], false);
  c10::AutoGradMode no_grad(false);
  const golden::Packed p = golden::unpad(c, "right");
  Step s = packed_step(p.lengths, at::kCPU), t = s;
  const at::Tensor ids = golden::ids_tensor(p.flat, at::kCPU);
  EXPECT_LT(max_abs(model->head(model->forward(ids, s), s), merged->head(merged->forward(ids, t), t)), 3e-4);
}

// As PEFT names them: a layer with factors is called base_layer inside of its wrapper, "norm" means every ...norm, and
// the table of an embedding with factors lies beside them.
TEST(Merge, PeftNamesOfParametersThatAreSavedWhole) {
  const Case c("lora_qwen2");
  Folder folder;
  c10::AutoGradMode no_grad(false);
  auto model = golden::owned_model(c.dir / "checkpoint");
  Adapter adapter = make_adapter(*model,
                                 {.r = 2,
                                  .alpha = 4,
                                  .bias = "all",
                                  .target_modules = {"q_proj", "embed_tokens"},
                                  .modules_to_save = {"norm"},
                                  .init = "false"},
                                 1);
  model->visit([](const std::string& name, Param& p) {
    if (name.ends_with("norm.weight") || name.ends_with(".bias")) p.data.mul_(1.5);
  });
  save_adapter(*model, adapter, folder.path, {});
  const std::string layer = "base_model.model.model.layers.0.";
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  {
    const auto file = SafetensorsFile::open(folder.path / "adapter_model.safetensors");
    for (const std::string name : {"self_attn.q_proj.base_layer.bias", "self_attn.k_proj.bias",
                                   "input_layernorm.weight", "post_attention_layernorm.weight"})
      EXPECT_TRUE(file->entries().count(layer + name)) << name;
    for (const auto& [name, entry] : file->entries()) tensors.emplace_back(name, file->tensor(name).clone());
  }
  const at::Tensor table = TensorFolder(c.dir / "checkpoint").tensor("model.embed_tokens.weight").clone();
  tensors.emplace_back("base_model.model.model.embed_tokens.base_layer.weight", table);
  write_safetensors(folder.path / "adapter_model.safetensors", tensors);

  auto loaded = golden::owned_model(c.dir / "checkpoint");
  const Adapter again = load_adapter(*loaded, folder.path);
  EXPECT_EQ(again.saved_params, adapter.saved_params);
  merge_adapters(
      {.base = c.dir / "checkpoint", .parts = {{folder.path}}, .output = folder.path / "out", .dtype = at::kFloat});
  auto merged = golden::owned_model(folder.path / "out");
  const golden::Packed p = golden::unpad(c, "right");
  const at::Tensor ids = golden::ids_tensor(p.flat, at::kCPU);
  const auto logits = [&](Model& m) {
    Step s = packed_step(p.lengths, at::kCPU);
    return m.head(m.forward(ids, s), s);
  };
  EXPECT_LT(max_abs(logits(*model), logits(*loaded)), 1e-6);
  EXPECT_LT(max_abs(logits(*model), logits(*merged)), 3e-4);
}

TEST(Merge, LayersAreCountedAsPeftDoes) {
  LoraConfig config{.target_modules = {"gate_proj", "model.layers.0.self_attn.q_proj"}, .layers_to_transform = {1}};
  EXPECT_TRUE(config.targets("model.layers.1.mlp.gate_proj"));
  EXPECT_FALSE(config.targets("model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(config.targets("model.layers.0.self_attn.q_proj"));         // named whole
  EXPECT_TRUE(config.targets("model.layers.5.mlp.experts.1.gate_proj"));  // the last number counts ...
  config.layers_pattern = {"layers"};                                     // ... unless the pattern says which
  EXPECT_FALSE(config.targets("model.layers.5.mlp.experts.1.gate_proj"));
  EXPECT_TRUE(config.targets("model.layers.1.mlp.experts.5.gate_proj"));
}

TEST(Merge, RefusesAnotherBase) {
  const Case c("lora_qwen2");
  Folder folder;
  test::expect_says(test::refusal(Fault::Model,
                                  [&] {
                                    merge_adapters({.base = Case("qwen2_untied_sharded").dir / "checkpoint",
                                                    .parts = {{c.dir / "adapter_lora"}},
                                                    .output = folder.path / "out"});
                                  }),
                    "another model");
  EXPECT_FALSE(fs::exists(folder.path / "out"));
  auto other = golden::owned_model(Case("qwen2_untied_sharded").dir / "checkpoint");
  EXPECT_THROW(load_adapter(*other, c.dir / "adapter_lora"), Error);
}

}  // namespace
}  // namespace apus
