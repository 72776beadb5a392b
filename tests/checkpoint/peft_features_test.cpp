// SPDX-License-Identifier: Apache-2.0
// What PEFT's configurations may ask for besides plain factors: biases of the factors, rows of tables.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/tensor.h>

#include "checkpoint/adapter.h"
#include "checkpoint/merge.h"
#include "ops/ops.h"
#include "tests/refusal.h"
#include "tests/train/training.h"
#include "train/trainable.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;
using golden::max_abs;

at::Tensor logits_of(const Case& c, Model& model) {
  const golden::Packed p = golden::unpad(c, "right");
  Step s = packed_step(p.lengths, golden::device());
  return model.head(model.forward(golden::ids_tensor(p.flat, golden::device()), s), s).to(at::kFloat);
}

// An adapter with random values everywhere, saved.
Adapter random_adapter(Model& model, LoraConfig config, const fs::path& dir) {
  config.init = "false";
  Adapter adapter = make_adapter(model, std::move(config), 1);
  model.visit([](const std::string& name, Param& p) {
    if (name.ends_with(".lora_B.bias")) p.data.copy_(at::randn(p.data.sizes()));
  });
  fs::create_directories(dir);
  save_adapter(model, adapter, dir, {});
  return adapter;
}

TEST(PeftFeatures, FactorsWithABias) {
  const Case c("lora_qwen2");
  Folder folder;
  c10::AutoGradMode no_grad(false);
  auto model = golden::owned_model(c.dir / "checkpoint");
  const at::Tensor plain = logits_of(c, *model);
  const Adapter adapter = random_adapter(
      *model, {.r = 2, .alpha = 4, .lora_bias = true, .target_modules = {"q_proj", "v_proj"}}, folder.path / "a");
  const at::Tensor wanted = logits_of(c, *model);
  EXPECT_GT(max_abs(wanted, plain), 0.1);
  EXPECT_EQ(Json::parse(read_file(folder.path / "a/adapter_config.json"))["lora_bias"], true);
  EXPECT_TRUE(SafetensorsFile::open(folder.path / "a/adapter_model.safetensors")
                  ->entries()
                  .count("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias"));

  auto again = golden::owned_model(c.dir / "checkpoint");
  load_adapter(*again, folder.path / "a");
  EXPECT_EQ(max_abs(logits_of(c, *again), wanted), 0);
  merge_adapters(
      {.base = c.dir / "checkpoint", .parts = {{folder.path / "a"}}, .output = folder.path / "m", .dtype = at::kFloat});
  EXPECT_LT(max_abs(logits_of(c, *golden::owned_model(folder.path / "m")), wanted), 1e-3);
  merge_attached(*again, adapter);
  EXPECT_LT(max_abs(logits_of(c, *again), wanted), 0.05);  // a bf16 base is rounded once
}

TEST(PeftFeatures, ABiasNeedsALayerWithOneToMerge) {
  const Case c("lora_qwen2");
  Folder folder;
  c10::AutoGradMode no_grad(false);
  auto model = golden::owned_model(c.dir / "checkpoint");
  random_adapter(*model, {.r = 2, .alpha = 4, .lora_bias = true, .target_modules = {"o_proj", "lm_head"}},
                 folder.path / "a");
  const at::Tensor with = logits_of(c, *model);
  model->visit([](const std::string& name, Param& p) {
    if (name == "lm_head.default.lora_B.bias") p.data.zero_();
  });
  EXPECT_GT(max_abs(with, logits_of(c, *model)), 0.5);  // the head's, too
  const std::string text = test::refusal(Fault::Model, [&] {
    merge_adapters({.base = c.dir / "checkpoint", .parts = {{folder.path / "a"}}, .output = folder.path / "m"});
  });
  test::expect_says(text, "has no bias in the base model");
}

TEST(PeftFeatures, GradientsReachTheBias) {
  const Case c("lora_qwen2");
  Folder folder;
  auto model = golden::owned_model(c.dir / "checkpoint");
  {
    c10::AutoGradMode no_grad(false);
    random_adapter(*model, {.r = 2, .alpha = 4, .lora_bias = true, .target_modules = {"o_proj"}}, folder.path / "a");
  }
  at::Tensor bias;
  model->visit([&](const std::string& name, Param& p) {
    if (name == "model.layers.0.self_attn.o_proj.default.lora_B.bias") bias = p.data.set_requires_grad(true);
  });
  const auto loss = [&] { return logits_of(c, *model).square().mean(); };
  loss().backward();
  ASSERT_TRUE(bias.grad().defined());
  c10::AutoGradMode no_grad(false);
  const double slope = bias.grad()[3].item<double>(), step = 1e-2;
  bias[3] += step;
  const double up = loss().item<double>();
  bias[3] -= 2 * step;
  EXPECT_NEAR((up - loss().item<double>()) / (2 * step), slope, 0.05 * std::abs(slope) + 1e-4);
}

// trainable_token_indices: the file holds whole rows; a tied head shares them.
TEST(PeftFeatures, RowsOfTables) {
  const Case c("lora_qwen2");
  Folder folder;
  c10::AutoGradMode no_grad(false);
  const fs::path dir = folder.path / "a";
  const auto load = [&] { return load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()}); };
  auto model = load();
  const at::Tensor plain = logits_of(c, *model);
  random_adapter(*model, {.r = 2, .alpha = 4, .target_modules = {"q_proj"}, .token_rows = {{"", {5, 3}}}}, dir);
  const at::Tensor rows = at::randn({2, model->shape().hidden});
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  {
    const auto file = SafetensorsFile::open(dir / "adapter_model.safetensors");
    const std::string name = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta";
    ASSERT_TRUE(file->entries().count(name));
    for (const auto& [other, entry] : file->entries())
      tensors.emplace_back(other, other == name ? rows : file->tensor(other).clone());
  }
  write_safetensors(dir / "adapter_model.safetensors", tensors);
  Json config = Json::parse(read_file(dir / "adapter_config.json"));
  EXPECT_EQ(config["trainable_token_indices"], Json({5, 3}));
  for (const Json& asked : {Json::array({5, 3}), Json{{"embed_tokens", {5, 3}}}}) {
    config["trainable_token_indices"] = asked;
    write_file_atomic(dir / "adapter_config.json", config.dump());
    auto loaded = load();
    const Adapter adapter = load_adapter(*loaded, dir);
    const at::Tensor wanted = logits_of(c, *loaded);
    EXPECT_GT(max_abs(wanted.select(1, 5), plain.select(1, 5)), 0.1);
    merge_adapters({.base = c.dir / "checkpoint", .parts = {{dir}}, .output = folder.path / "m", .dtype = at::kFloat});
    const TensorFolder merged(folder.path / "m");
    EXPECT_EQ(merged.find("lm_head.weight"), nullptr);  // still tied
    EXPECT_LT(max_abs(merged.tensor("model.embed_tokens.weight")[5], rows[0]), 1e-6);
    const LoadOptions wide{.dtype = at::kFloat, .device = golden::device()};
    EXPECT_LT(max_abs(logits_of(c, *load_model(folder.path / "m", wide)), wanted), 1e-4);
    merge_attached(*loaded, adapter);
    EXPECT_LT(max_abs(logits_of(c, *loaded), wanted), 1e-4);
    at::Tensor table, head;
    loaded->visit([&](const std::string& name, Param& p) {
      if (name == "model.embed_tokens.weight") table = p.data;
      if (name == "lm_head.weight") head = p.data;
    });
    EXPECT_LT(max_abs(table[3], rows[1]), 1e-6);
    EXPECT_TRUE(head.is_same(table));
    fs::remove_all(folder.path / "m");
  }
  auto other = load();
  EXPECT_THROW(load_adapter_beside(*other, dir, "b", at::kFloat, {}), Error);
  config["trainable_token_indices"] = {5, 1000000};
  write_file_atomic(dir / "adapter_config.json", config.dump());
  EXPECT_THROW(load_adapter(*other, dir), Error);
  EXPECT_THROW(merge_adapters({.base = c.dir / "checkpoint", .parts = {{dir}}, .output = folder.path / "m"}), Error);
}

TEST(PeftFeatures, RowsAreNamedByIdsAndTexts) {
  using Rows = std::map<std::string, std::vector<int64_t>>;
  const auto listed = [](const std::vector<std::string>& words) {
    return listed_token_rows(words, [](const std::string& token) { return static_cast<int64_t>(token.size()); });
  };
  EXPECT_EQ(listed({}), Rows());
  EXPECT_EQ(listed({"5", "<a>"}), (Rows{{"", {5, 3}}}));
  EXPECT_EQ(listed({R"([5, "<a>"])"}), (Rows{{"", {5, 3}}}));
  EXPECT_EQ(listed({R"({"lm_head": [1], "embed_tokens": [2, 3]})"}),
            (Rows{{"embed_tokens", {2, 3}}, {"lm_head", {1}}}));
  for (const char* wrong : {"{}", "[]", "[1.5]", R"({"lm_head": 1})", R"({"": [1]})", "[1"})
    test::refusal(Fault::Usage, [&] { listed({wrong}); });
}

// Only the rows have a gradient: that of the table and head, had all of it been trained, in these rows.
TEST(PeftFeatures, RowsAreTrainedAlone) {
  const Case c("lora_qwen2");
  const LoadOptions wide{.dtype = at::kFloat, .device = golden::device()};
  const golden::Packed p = golden::unpad(c, "right");
  std::vector<int64_t> rows = {p.flat[0], 7};  // one that is read, one that is not
  const auto trained = [&](Model& model) {
    Step s = packed_step(p.lengths, golden::device());
    const at::Tensor id = golden::ids_tensor(p.flat, golden::device()), x = model.forward(id, s);
    const at::Tensor loss = ops::head_loss(model.head_factors(x, s), at::roll(id, -1).to(at::kLong), {}, {}).loss_sum;
    loss.backward();
    return loss.item<double>();
  };
  auto whole = load_model(c.dir / "checkpoint", wide);
  at::Tensor table;
  whole->visit([&](const std::string& name, Param& q) {
    if (name == "model.embed_tokens.weight") table = q.data = q.data.clone();
  });
  whole->visit([&](const std::string& name, Param& q) {
    if (name == "lm_head.weight") q.data = table;
  });
  table.set_requires_grad(true);
  const double wanted = trained(*whole);

  auto model = load_model(c.dir / "checkpoint", wide);
  make_adapter(*model, {.r = 2, .alpha = 4, .target_modules = {"q_proj"}, .token_rows = {{"", rows}}}, 1);
  at::Tensor own;
  int64_t numbers = 0;
  for (const NamedParam& q : trainable_params(*model)) {
    if (q.name.ends_with("trainable_tokens_delta")) own = q.tensor;
    numbers += q.name.find(".lora_") != std::string::npos;
  }
  ASSERT_TRUE(own.defined());
  EXPECT_EQ(own.size(0), 2);
  EXPECT_GT(numbers, 0);
  EXPECT_NEAR(trained(*model), wanted, 1e-4);
  const at::Tensor expected = at::index_select(table.grad(), 0, at::tensor(rows).to(table.device()));
  EXPECT_LT(max_abs(own.grad(), expected), 1e-5 * expected.abs().max().item<double>());
}

TEST(PeftFeatures, RowsThatCannotBeTrained) {
  const Case c("lora_qwen2");
  const auto refusal = [&](LoraConfig config) {
    auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
    if (config.target_modules.empty()) config.target_modules = {"q_proj"};
    return test::refusal(Fault::Usage, [&] { make_adapter(*model, std::move(config), 1); });
  };
  test::expect_says(refusal({.token_rows = {{"", {1, 1}}}}), "1 twice");
  test::expect_says(refusal({.token_rows = {{"", {1 << 30}}}}), "is a table of");
  test::expect_says(refusal({.token_rows = {{"tokens", {1}}}}), "model.embed_tokens");
  test::expect_says(refusal({.token_rows = {{"lm_head", {1}}}}), "tied");
  test::expect_says(refusal({.target_modules = {"q_proj", "embed_tokens"}, .token_rows = {{"", {1}}}}), "choose one");
}

// target_parameters: one A and one B over the experts of a layer in the file, factors of each expert in the model.
TEST(PeftFeatures, FactorsOverStackedExperts) {
  const Case c("qwen3_moe_norm");
  Folder folder;
  c10::AutoGradMode no_grad(false);
  const fs::path dir = folder.path / "a";
  const std::vector<std::string> both = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  // The words of all-linear mean experts too: with a list of stacks they do not.
  const Adapter adapter = random_adapter(
      *model, {.r = 2, .alpha = 4, .target_modules = {"q_proj", "gate_proj"}, .target_parameters = both}, dir);
  const at::Tensor wanted = logits_of(c, *model);
  const auto file = SafetensorsFile::open(dir / "adapter_model.safetensors");
  const std::string experts = "base_model.model.model.layers.0.mlp.experts";
  const auto shape = [&](const std::string& name) { return file->entries().at(experts + name).shape; };
  EXPECT_EQ(shape(".base_layer.lora_A.weight"), (std::vector<int64_t>{16, 64}));
  EXPECT_EQ(shape(".base_layer.lora_B.weight"), (std::vector<int64_t>{96, 16}));
  EXPECT_EQ(shape(".lora_A.weight"), (std::vector<int64_t>{16, 48}));
  EXPECT_EQ(shape(".lora_B.weight"), (std::vector<int64_t>{64, 16}));
  EXPECT_EQ(file->entries().size(), 3u * 6);
  EXPECT_EQ(Json::parse(read_file(dir / "adapter_config.json"))["target_parameters"], Json(both));

  // As PEFT adds it: sum over r of B[o, r e] A[e r, i], times alpha / r.
  const int64_t expert = 5, rank = 2;
  const at::Tensor a = file->tensor(experts + ".base_layer.lora_A.weight").view({8, rank, 64})[expert],
                   b = file->tensor(experts + ".base_layer.lora_B.weight").view({96, rank, 8}).select(2, expert),
                   change = b.mm(a) * 2;
  const TensorFolder base(c.dir / "checkpoint");
  merge_adapters({.base = c.dir / "checkpoint", .parts = {{dir}}, .output = folder.path / "m", .dtype = at::kFloat});
  const TensorFolder merged(folder.path / "m");
  for (const auto& [name, first] : {std::pair{"gate_proj", 0}, {"up_proj", 48}}) {
    const std::string weight = str("model.layers.0.mlp.experts.", expert, ".", name, ".weight");
    EXPECT_LT(max_abs(merged.tensor(weight) - base.tensor(weight).to(at::kFloat), change.narrow(0, first, 48)), 1e-6);
  }
  EXPECT_LT(
      max_abs(logits_of(c, *load_model(folder.path / "m", {.dtype = at::kFloat, .device = golden::device()})), wanted),
      1e-3);

  auto again = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  load_adapter(*again, dir);
  EXPECT_EQ(max_abs(logits_of(c, *again), wanted), 0);
}

TEST(PeftFeatures, GateAndUpOfAnExpertLearnOneFirstFactor) {
  const Case c("qwen3_moe_norm");
  Folder folder;
  const LoraConfig config{.r = 2, .alpha = 4, .target_parameters = {"mlp.experts.gate_up_proj"}};
  auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  random_adapter(*model, config, folder.path / "a");
  std::map<std::string, at::Tensor> trained;
  for (const NamedParam& p : trainable_params(*model)) trained[p.name] = p.tensor;
  EXPECT_EQ(trained.size(), 3u * 8 * 3);  // A, and B of gate and of up
  const auto named = [](int64_t expert, const char* end) {
    return str("model.layers.1.mlp.experts.", expert, ".", end);
  };
  const auto loss = [&] { return logits_of(c, *model).square().mean(); };
  loss().backward();
  for (int64_t expert = 0; expert < 8; ++expert) {
    const at::Tensor a = trained.at(named(expert, "gate_proj.default.lora_A.weight"));
    EXPECT_EQ(trained.count(named(expert, "up_proj.default.lora_A.weight")), 0u);
    if (!a.grad().defined()) continue;  // no token chose it
    const int64_t at = a.grad().abs().argmax().item<int64_t>();
    const double slope = a.grad().flatten()[at].item<double>(), step = 2e-3;
    c10::AutoGradMode no_grad(false);
    at::Tensor value = a.view(-1)[at];
    value += step;
    const double up = loss().item<double>();
    value -= 2 * step;
    const double down = loss().item<double>();
    value += step;
    EXPECT_NEAR((up - down) / (2 * step), slope, 0.05 * std::abs(slope) + 1e-3) << expert;
  }
}

TEST(PeftFeatures, StackedExpertsThatAreNotThereAreRefused) {
  const Case c("qwen3_moe_norm");
  auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  const auto refusal = [&](LoraConfig config) {
    return test::refusal(Fault::Usage, [&] { make_adapter(*model, std::move(config), 1); });
  };
  test::expect_says(refusal({.target_parameters = {"experts.w13"}}), "it has, for one, model.layers.0.mlp.experts.");
  test::expect_says(refusal({.dropout = 0.1, .target_parameters = {"experts.down_proj"}}), "--lora_dropout 0");
}

}  // namespace
}  // namespace apus
