// SPDX-License-Identifier: Apache-2.0
// AdaLoRA, Bone, BOFT, IA3, FourierFT, VeRA, LN and prompt tuning against PEFT, bottlenecks against ms-swift: logits,
// loss, gradients, files both ways, merged weights.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "base/prompt_words.h"
#include "checkpoint/adapter.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/merge.h"
#include "checkpoint/names.h"
#include "nn/boft.h"
#include "nn/fourier.h"
#include "nn/vera.h"
#include "ops/ops.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"
#include "tests/refusal.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::max_abs;

class AdapterKind : public ::testing::TestWithParam<const char*> {
 protected:
  AdapterKind()
      : c("lora_qwen2"),
        json(Json::parse(read_file(c.dir / "kinds.json"))[GetParam()]),
        numbers(SafetensorsFile::open(c.dir / "kinds.safetensors")),
        dir(c.dir / json["dir"].get<std::string>()),
        batch(golden::unpad(c, "right")) {
    const LoraConfig config = read_adapter_config(dir);
    if (config.kind == "prompt_tuning") put_prompt_before_each(config.prompt.words);
  }
  void put_prompt_before_each(int64_t words) {
    golden::Packed with;
    size_t begin = 0;
    for (const int32_t length : batch.lengths) {
      std::vector<int32_t> prompt;
      put_prompt_before(prompt, words);
      with.lengths.push_back(length + static_cast<int32_t>(words));
      with.flat.insert(with.flat.end(), prompt.begin(), prompt.end());
      with.labels.insert(with.labels.end(), prompt.size(), -100);
      for (const size_t end = begin + static_cast<size_t>(length); begin < end; ++begin)
        with.flat.push_back(batch.flat[begin]), with.labels.push_back(batch.labels[begin]);
    }
    batch = std::move(with);
  }
  std::unique_ptr<Model> base() const {
    return load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  }
  at::Tensor wanted() const { return numbers->tensor(str(GetParam(), "/logits")); }
  at::Tensor logits(Model& model) const {
    c10::AutoGradMode no_grad(false);
    Step step = packed_step(batch.lengths, golden::device());
    const at::Tensor id_T = golden::ids_tensor(batch.flat, golden::device());
    const at::Tensor hidden_TD =
        model.forward(id_T, step).index({id_T < int64_t{kFirstPromptWord}}).narrow(0, 0, wanted().size(0));
    return model.head(hidden_TD, step);
  }
  Case c;
  Json json;
  std::shared_ptr<SafetensorsFile> numbers;
  fs::path dir;
  golden::Packed batch;
};

TEST_P(AdapterKind, LogitsLossAndGradients) {
  const auto model = base();
  const Adapter adapter = load_adapter(*model, dir);
  EXPECT_LT(max_abs(logits(*model), wanted()), 3e-4);
  std::map<std::string, Param*> params;
  model->visit_modules([&](const std::string& name, Module& m) {
    if (auto* layer = dynamic_cast<Adaptable*>(&m))
      for (const auto& [called, delta] : layer->adapters())
        delta->visit([&](const std::string& n, Param& p) { params[n] = &p; }, name_in_file(adapter.config, name));
  });
  model->visit([&](const std::string& n, Param& p) {  // norms, trained whole
    if (p.trainable && adapter.config.saves(module_of(n)))
      params[str(kAdapterPrefix, module_of(n), ".ln_tuning_layers", n.substr(n.rfind('.')))] = &p;
  });
  for (auto& [name, param] : params) param->data.set_requires_grad(true);
  Step step = packed_step(batch.lengths, golden::device());
  const at::Tensor hidden = model->forward(golden::ids_tensor(batch.flat, golden::device()), step);
  const auto loss = ops::head_loss({hidden, model->head_weight()}, golden::ids_tensor(batch.labels, golden::device()),
                                   at::ones({hidden.size(0)}, hidden.options()), {});
  double count = 0;
  for (const int64_t label : batch.labels) count += label >= 0;
  EXPECT_NEAR(loss.loss_sum.item<double>() / count, json["loss"].get<double>(), 2e-5);
  loss.loss_sum.backward(at::full_like(loss.loss_sum, 1 / count));
  for (const auto& [name, norm] : json["grad_norms"].items()) {
    ASSERT_TRUE(params.count(name)) << name;
    const auto theirs = norm.get<double>();
    if (params[name]->data.numel() == 0) continue;  // no rank of the layer is left
    const at::Tensor grad = params[name]->data.grad().to(at::kCPU);
    EXPECT_NEAR(grad.norm().item<double>(), theirs, 1e-3 * theirs) << name;
    if (const std::string key = str(GetParam(), "/grad/", name); numbers->entries().count(key)) {
      EXPECT_LT((grad - numbers->tensor(key)).norm().item<double>(), 1e-3 * theirs) << name;
    }
  }
  EXPECT_EQ(params.size(), json["grad_norms"].size());
}

class MergedKind : public AdapterKind {};

TEST_P(MergedKind, SavedAndMergedItIsTheSame) {
  const test::Folder folder;
  const auto model = base();
  const Adapter adapter = load_adapter(*model, dir);
  fs::create_directories(folder.path / "a");
  save_adapter(*model, adapter, folder.path / "a", {});
  const auto mine = SafetensorsFile::open(folder.path / "a/adapter_model.safetensors"),
             theirs = SafetensorsFile::open(dir / "adapter_model.safetensors");
  ASSERT_EQ(mine->entries().size(), theirs->entries().size());
  for (const auto& [name, entry] : theirs->entries()) {
    ASSERT_TRUE(mine->entries().count(name)) << name;
    ASSERT_EQ(mine->entries().at(name).shape, entry.shape) << name;
    if (mine->tensor(name).numel() == 0) continue;
    EXPECT_EQ(max_abs(mine->tensor(name), theirs->tensor(name)), 0) << name;
  }
  const Json said = Json::parse(read_file(folder.path / "a/adapter_config.json")),
             their = Json::parse(read_file(dir / "adapter_config.json"));
  for (const char* key : {"peft_type",
                          "num_virtual_tokens",
                          "token_dim",
                          "num_transformer_submodules",
                          "num_attention_heads",
                          "num_layers",
                          "prompt_tuning_init",
                          "init_r",
                          "target_r",
                          "r",
                          "boft_block_size",
                          "total_step",
                          "mini_r",
                          "feedforward_modules",
                          "init_ia3_weights",
                          "n_frequency",
                          "random_loc_seed",
                          "scaling",
                          "init_weights",
                          "projection_prng_key",
                          "save_projection",
                          "d_initial"})
    EXPECT_EQ(said.value(key, Json()), their.value(key, Json())) << key;

  merge_adapters({.base = c.dir / "checkpoint", .parts = {{dir}}, .output = folder.path / "m", .dtype = at::kFloat});
  EXPECT_LT(
      max_abs(logits(*load_model(folder.path / "m", {.dtype = at::kFloat, .device = golden::device()})), wanted()),
      1e-3);
  merge_attached(*model, adapter);
  EXPECT_LT(max_abs(logits(*model), wanted()), 1e-3);
}

TEST_P(MergedKind, AFreshOneChangesNothing) {
  const auto model = base();
  const at::Tensor plain = logits(*model);
  LoraConfig config = read_adapter_config(dir);
  config.init = GetParam() == std::string("fourierft") ? "false" : "true";  // whose usual values are random
  make_adapter(*model, config, 3);
  EXPECT_LT(max_abs(logits(*model), plain), 1e-5);
  config.init = "pissa";
  test::expect_says(test::refusal(Fault::Usage, [&] { make_adapter(*base(), config, 3); }), "possible: true, false");
}

INSTANTIATE_TEST_SUITE_P(Peft, AdapterKind,
                         ::testing::Values("adalora", "miss", "boft", "ia3", "fourierft", "vera", "ln_tuning",
                                           "prompt_tuning", "adapter"));
INSTANTIATE_TEST_SUITE_P(Peft, MergedKind,
                         ::testing::Values("adalora", "miss", "boft", "ia3", "fourierft", "vera", "ln_tuning"));

// A fresh prompt is made of the table's rows, and its files are PEFT's.
TEST(PromptTuning, ItBeginsAsWordsAndIsSavedAsPeftSavesIt) {
  const Case c("lora_qwen2");
  const auto base = [&] { return load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()}); };
  const auto rows_of = [](Model& model) {
    at::Tensor rows;
    model.visit([&](const std::string& name, Param& p) {
      if (name.ends_with("prompt_embeddings")) rows = p.data;
    });
    return rows;
  };
  LoraConfig config;
  config.kind = "prompt_tuning", config.init = "TEXT", config.prompt.words = 5, config.prompt.text_ids = {7, 9};
  const auto text = base();
  const Adapter adapter = make_adapter(*text, config, 3);
  const at::Tensor table = TensorFolder(c.dir / "checkpoint").tensor("model.embed_tokens.weight").to(at::kFloat);
  for (const auto& [row, token] : std::map<int, int>{{0, 7}, {1, 9}, {2, 7}, {3, 9}, {4, 7}})
    EXPECT_EQ(max_abs(rows_of(*text)[row], table[token]), 0) << row;
  config.init = "SAMPLE_VOCAB";
  const auto drawn = base(), likewise = base(), other = base();
  make_adapter(*drawn, config, 3), make_adapter(*likewise, config, 3), make_adapter(*other, config, 4);
  EXPECT_EQ(max_abs(rows_of(*drawn), rows_of(*likewise)), 0);
  EXPECT_GT(max_abs(rows_of(*drawn), rows_of(*other)), 0);
  EXPECT_EQ((table.unsqueeze(0) - rows_of(*drawn).cpu().unsqueeze(1)).abs().amax(2).amin(1).max().item<float>(), 0);

  const fs::path theirs = c.dir / "adapter_prompt_tuning";
  const auto model = base();
  const Adapter read = load_adapter(*model, theirs);
  const test::Folder folder;
  save_adapter(*model, read, folder.path, {});
  const auto mine = SafetensorsFile::open(folder.path / "adapter_model.safetensors"),
             their = SafetensorsFile::open(theirs / "adapter_model.safetensors");
  ASSERT_EQ(mine->entries().size(), 1U);
  EXPECT_EQ(max_abs(mine->tensor("prompt_embeddings"), their->tensor("prompt_embeddings")), 0);
  const Json said = Json::parse(read_file(folder.path / "adapter_config.json")),
             their_config = Json::parse(read_file(theirs / "adapter_config.json"));
  for (const auto& [key, value] : their_config.items())
    if (key != "peft_version") {
      EXPECT_EQ(said.value(key, Json("missing")), value) << key;
    }
  test::expect_says(test::refusal(Fault::Usage,
                                  [&] {
                                    merge_adapters({.base = c.dir / "checkpoint",
                                                    .parts = {{theirs}},
                                                    .output = folder.path / "m",
                                                    .dtype = at::kFloat});
                                  }),
                    "cannot be merged");
}

// As torch.randperm draws them, seed 777.
TEST(Fourier, PlacesAreTorchs) {
  EXPECT_EQ(first_of_order(24, 5, 777), (std::vector<int64_t>{23, 2, 19, 17, 1}));
  EXPECT_EQ(first_of_order(100000, 5, 777), (std::vector<int64_t>{85735, 8325, 37745, 38544, 55035}));
  test::expect_says(
      test::refusal(Fault::Usage,
                    [] { FourierChange({.in = 2, .out = 2, .frequencies = 5, .scaling = 1, .places = 1}); }),
      "has 1 to 4 of them");
}

// A file may leave out the matrices that all layers share: they are those that PEFT drew.
TEST(Vera, MatricesThatWereNotSavedAreDrawn) {
  const Case c("lora_qwen2");
  const fs::path dir = c.dir / "adapter_vera";
  const auto file = SafetensorsFile::open(dir / "adapter_model.safetensors");
  const at::Tensor a = file->tensor(kSharedA), b = file->tensor(kSharedB);
  const auto drawn = SharedMatrices::drawn(6, a.size(1), b.size(0), 3)->on(at::kCPU);
  EXPECT_TRUE(at::equal(drawn.first, a));
  EXPECT_TRUE(at::equal(drawn.second, b));

  const test::Folder folder;
  Json config = Json::parse(read_file(dir / "adapter_config.json"));
  config["save_projection"] = false;
  write_file_atomic(folder.path / "adapter_config.json", config.dump());
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, entry] : file->entries())
    if (name != kSharedA && name != kSharedB) tensors.emplace_back(name, file->tensor(name));
  write_safetensors(folder.path / "adapter_model.safetensors", tensors);
  const auto merged = [&](const fs::path& adapter, const char* to) {
    merge_adapters(
        {.base = c.dir / "checkpoint", .parts = {{adapter}}, .output = folder.path / to, .dtype = at::kFloat});
    return std::make_unique<TensorFolder>(folder.path / to);
  };
  const auto ours = merged(folder.path, "drawn"), theirs = merged(dir, "saved");
  for (const std::string& name : theirs->names())
    EXPECT_TRUE(at::equal(ours->tensor(name), theirs->tensor(name))) << name;

  const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  const Adapter adapter = load_adapter(*model, folder.path);
  save_adapter(*model, adapter, folder.path / "again", {});
  EXPECT_EQ(SafetensorsFile::open(folder.path / "again/adapter_model.safetensors")->entries().size(), tensors.size());
  test::expect_says(
      test::refusal(Fault::Model,
                    [&] { Vera({.in = 161, .out = 8, .rank = 6}, std::make_shared<SharedMatrices>(a, b)); }),
      "too small for a layer of 161 inputs");
}

TEST(Bottlenecks, AreSavedAsMsSwiftSavesThemAndNeverMerged) {
  const Case c("lora_qwen2");
  const fs::path dir = c.dir / "adapter_adapter";
  const test::Folder folder;
  const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  const Adapter adapter = load_adapter(*model, dir);
  save_adapter(*model, adapter, folder.path, {});
  EXPECT_TRUE(is_adapter_dir(folder.path));
  EXPECT_EQ(Json::parse(read_file(folder.path / "default/adapter_config.json")),
            Json::parse(read_file(dir / "default/adapter_config.json")));
  EXPECT_EQ(read_file(folder.path / "configuration.json"), read_file(dir / "configuration.json"));
  const auto mine = SafetensorsFile::open(folder.path / "default/adapter_model.safetensors"),
             theirs = SafetensorsFile::open(dir / "default/adapter_model.safetensors");
  ASSERT_EQ(mine->entries().size(), theirs->entries().size());
  for (const auto& [name, entry] : theirs->entries()) {
    ASSERT_TRUE(mine->entries().count(name)) << name;
    EXPECT_EQ(max_abs(mine->tensor(name), theirs->tensor(name)), 0) << name;
  }
  test::expect_says(
      test::refusal(
          Fault::Usage,
          [&] { merge_adapters({.base = c.dir / "checkpoint", .parts = {{dir}}, .output = folder.path / "m"}); }),
      "cannot be merged");
  test::expect_says(test::refusal(Fault::Usage, [&] { merge_attached(*model, adapter); }), "cannot be merged");
}

TEST(Bottlenecks, StandBehindTheFeedForwardsOfAModelWithoutMixtures) {
  EXPECT_EQ(feed_forward_expression({"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj", "lm_head"}),
            "model\\.layers\\.\\d+\\.mlp");
  EXPECT_TRUE(ends_feed_forward("model.layers.12.mlp.down_proj", "model\\.layers\\.\\d+\\.mlp"));
  EXPECT_FALSE(ends_feed_forward("model.layers.12.mlp.up_proj", "model\\.layers\\.\\d+\\.mlp"));
  test::expect_says(
      test::refusal(Fault::Usage, [] { feed_forward_expression({"model.layers.0.mlp.experts.0.down_proj"}); }),
      "without mixtures of experts");
}

// PEFT's own reading of BONE, before it was called MiSS.
TEST(AdapterKinds, BoneUnderItsOldName) {
  const Case c("lora_qwen2");
  const test::Folder folder;
  Json config = Json::parse(read_file(c.dir / "adapter_miss/adapter_config.json"));
  config["peft_type"] = "BONE";
  write_file_atomic(folder.path / "adapter_config.json", config.dump());
  const auto file = SafetensorsFile::open(c.dir / "adapter_miss/adapter_model.safetensors");
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, entry] : file->entries())
    tensors.emplace_back(name.substr(0, name.rfind('.')) + ".bone_block", file->tensor(name));
  write_safetensors(folder.path / "adapter_model.safetensors", tensors);
  const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  const Adapter adapter = load_adapter(*model, folder.path);
  fs::create_directories(folder.path / "again");
  save_adapter(*model, adapter, folder.path / "again", {});
  EXPECT_EQ(Json::parse(read_file(folder.path / "again/adapter_config.json"))["peft_type"], "BONE");
  EXPECT_EQ(SafetensorsFile::open(folder.path / "again/adapter_model.safetensors")->entries().count(tensors[0].first),
            1u);
}

TEST(AdapterKinds, WhatTheyCannotBeOnIsNamed) {
  const Case c("lora_qwen2");
  const auto refused = [&](LoraConfig config) {
    const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
    return test::refusal(Fault::Usage, [&] { make_adapter(*model, std::move(config), 1); });
  };
  test::expect_says(refused({.target_modules = {"lm_head"}, .kind = "boft"}), "BOFT on lm_head is not available");
  test::expect_says(refused({.target_modules = {"embed_tokens"}, .kind = "bone"}), "Bone on the embedding");
  test::expect_says(refused({.target_modules = {"q_proj"}, .kind = "boft", .boft = {.block_size = 7}}),
                    "--boft_block_size 7 does not divide the 64 inputs");
}

TEST(AdapterKinds, TheHeadTakesThoseOfLowRank) {
  const Case c("lora_qwen2");
  const golden::Packed p = golden::unpad(c, "right");
  c10::AutoGradMode no_grad(false);
  for (const char* kind : {"adalora", "bone", "vera"}) {
    const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
    const Adapter adapter =
        make_adapter(*model, {.r = 6, .target_modules = {"lm_head"}, .init = "false", .kind = kind}, 1);
    Step step = packed_step(p.lengths, golden::device());
    const at::Tensor hidden = model->forward(golden::ids_tensor(p.flat, golden::device()), step);
    const at::Tensor with = model->head(hidden, step);
    merge_attached(*model, adapter);
    EXPECT_LT(max_abs(model->head(hidden, step), with), 1e-3 * with.abs().max().item<double>()) << kind;
  }
}

// Several factors need PEFT's extension for GPUs. Held against the definition: R = R_last ... R_first, each of them
// P B P' with the permutation's matrix P.
TEST(Boft, FactorsAreMixedByAButterfly) {
  EXPECT_EQ(butterfly_order(8, 1, 1), (std::vector<int64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(butterfly_order(8, 2, 1), (std::vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7}));
  const int64_t in = 16, out = 5;
  Boft boft({.in = in, .out = out, .block = 4, .factors = 2}, nullptr);
  boft.rotation().data = at::randn({2, 4, 4, 4});
  boft.scale().data = at::randn({out, 1});
  const at::Tensor blocks = cayley_blocks(boft.rotation().data);
  EXPECT_LT(max_abs(at::matmul(blocks, blocks.transpose(-1, -2)), at::eye(4).expand({2, 4, 4, 4})), 1e-5);
  at::Tensor rotation = at::eye(in);
  for (int64_t i = 0; i < 2; ++i) {
    at::Tensor order = at::zeros({in, in}), diagonal = at::zeros({in, in});
    const auto places = butterfly_order(in, i == 0 ? 4 : 2, 2);
    for (int64_t row = 0; row < in; ++row) order[row][places[static_cast<size_t>(row)]] = 1;
    for (int64_t b = 0; b < 4; ++b) diagonal.narrow(0, 4 * b, 4).narrow(1, 4 * b, 4).copy_(blocks[i][b]);
    rotation = order.mm(diagonal).mm(order.t()).mm(rotation);
  }
  const at::Tensor x = at::randn({3, in}), weight = at::randn({out, in});
  const at::Tensor wanted = x.mm(rotation).mm(weight.t()) * boft.scale().data.squeeze(1);
  c10::AutoGradMode no_grad(false);
  EXPECT_LT(max_abs(boft.apply(x, {}, weight, Step()), wanted), 1e-4);
  EXPECT_LT(max_abs(x.mm(boft.merged(weight).t()), wanted), 1e-4);
}

}  // namespace
}  // namespace apus
