// SPDX-License-Identifier: Apache-2.0
// Weights in and out of folders: round trips in one file and in shards, stacked experts, and everything that can be
// wrong, told at once.
#include "checkpoint/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <fstream>

#include "checkpoint/mxfp4.h"
#include "checkpoint/shards.h"
#include "models/spec/family.h"
#include "models/spec/presets.h"
#include "ops/quantised.h"
#include "tests/fake_mesh.h"
#include "tests/folder.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

using test::expect_says;
using test::Folder;
using test::refusal;

std::map<std::string, at::Tensor> tensors_of(Module& model, const DiskForm& form = {}) {
  std::map<std::string, at::Tensor> all;
  each_disk_tensor(
      model, [&](const DiskTensor& t) { all[t.name] = t.data; }, form);
  return all;
}

void write_tensors(const fs::path& dir, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<SafetensorsWriter::Spec> specs;
  for (const auto& [name, t] : tensors) specs.push_back({name, t.scalar_type(), t.sizes().vec()});
  ShardsWriter writer(dir, specs, int64_t{1} << 30);
  for (const auto& [name, t] : tensors) writer.add(name, t);
  writer.commit();
}

TEST(Weights, SavedShardsLoadToTheSameTensors) {
  for (const char* name : {"qwen2", "qwen3_moe_norm", "qwen3_moe_nonorm", "gpt_oss", "ernie4_5_moe_vl"}) {
    Folder folder;
    const auto dir = golden::models() / name / "checkpoint";
    const auto model = load_model(dir, {.dtype = at::kBFloat16});
    fs::copy_file(dir / "config.json", folder.path / "config.json");
    save_weights(*model, folder.path, 100'000, at::kBFloat16);
    ASSERT_TRUE(fs::exists(folder.path / "model.safetensors.index.json"));
    EXPECT_GT(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 3) << name;
    const auto again = load_model(folder.path, {.dtype = at::kBFloat16});
    const auto before = tensors_of(*model, model->disk_form()), after = tensors_of(*again, again->disk_form());
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [key, tensor] : before) EXPECT_TRUE(at::equal(tensor, after.at(key))) << key;
    const TensorFolder original(dir);
    for (const auto& [key, tensor] : before) EXPECT_TRUE(at::equal(tensor, original.tensor(key))) << key;
    EXPECT_EQ(original.names().size(), before.size());
  }
}

// Gates and ups of an expert as one matrix.
at::Tensor in_one(const Param& stack) { return stack.data.dim() == 4 ? stack.data.flatten(1, 2) : stack.data; }

// transformers 5 keeps the experts of a layer in one tensor, and calls every mixture's block mlp.
TEST(Weights, StackedExpertsUnderNewerNamesAreRead) {
  for (const char* name : {"mixtral", "qwen3_moe_norm", "glm4_moe"}) {
    const auto dir = golden::models() / name / "checkpoint";
    const auto model = load_model(dir, {.dtype = at::kFloat});
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    model->visit([&](const std::string& own, Param& p) {
      std::string newer = own;
      if (const size_t at = newer.find("block_sparse_moe"); at != std::string::npos) newer.replace(at, 16, "mlp");
      if (p.tied.empty()) tensors.emplace_back(newer, p.pieces.empty() ? p.data : in_one(p));
    });
    Folder folder;
    fs::copy_file(dir / "config.json", folder.path / "config.json");
    write_tensors(folder.path, tensors);
    const auto again = load_model(folder.path, {.dtype = at::kFloat});
    const auto before = tensors_of(*model), after = tensors_of(*again);
    for (const auto& [key, tensor] : before) EXPECT_TRUE(at::equal(tensor, after.at(key))) << name << " " << key;
  }
}

// A byte holds two numbers, the first in its lower half; a scale is a power of two.
TEST(Weights, NumbersOfFourBitsAreTakenOut) {
  at::Tensor blocks = at::zeros({1, 2, 1, 16}, at::kByte), scales = at::zeros({1, 2, 1}, at::kByte);
  const auto put = [&](int64_t row, int64_t place, int byte) { blocks[0][row][0][place].fill_(byte); };
  put(0, 0, 0x71), put(0, 1, 0x9a), put(0, 15, 0xf2), put(1, 0, 0x01);
  scales[0][0][0].fill_(128), scales[0][1][0].fill_(120);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor values = mxfp4_values(blocks, scales, type).to(at::kFloat);
    ASSERT_EQ(values.sizes(), at::IntArrayRef({1, 2, 32}));
    EXPECT_TRUE(at::equal(values[0][0].narrow(0, 0, 4), at::tensor({1.0F, 12.0F, -2.0F, -1.0F})));
    EXPECT_TRUE(at::equal(values[0][0].narrow(0, 30, 2), at::tensor({2.0F, -12.0F})));
    EXPECT_EQ(values[0][1][0].item<float>(), 0.5F / 128);
  }
}

// gpt-oss's experts stand in the file the other way round, or as rows of four bits.
TEST(Weights, PackedExpertsAreRead) {
  at::manual_seed(1);
  Json config = read_model_config(golden::models() / "gpt_oss/checkpoint");
  config["hidden_size"] = 64, config["intermediate_size"] = 32;
  // All of them, so that no choice between two that are rated nearly alike decides.
  config["num_experts_per_tok"] = config["num_local_experts"];
  Folder folder;
  write_file_atomic(folder.path / "config.json", config.dump());
  const auto model = make_model(config);
  std::map<std::string, at::Tensor> values;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  model->visit([&](const std::string& name, Param& p) {
    // Small ones: attention that is all but a choice makes a large difference of a rounding.
    if (!p.turned) return tensors.emplace_back(name, 0.2 * at::randn(p.full)), void();
    const auto shapes = mxfp4_shapes(name, p.full);
    const at::Tensor blocks = at::randint(0, 256, shapes[0].shape, at::kByte),
                     scales = at::randint(118, 126, shapes[1].shape, at::kByte);
    tensors.emplace_back(shapes[0].name, blocks), tensors.emplace_back(shapes[1].name, scales);
    values[name] = mxfp4_values(blocks, scales, at::kFloat);
  });
  write_tensors(folder.path, tensors);
  const auto read = load_model(folder.path, {.dtype = at::kFloat});
  ASSERT_EQ(values.size(), 4);
  read->visit([&](const std::string& name, Param& p) {
    if (p.turned) {
      EXPECT_TRUE(at::equal(p.data, values.at(name))) << name;
    }
  });
  // For answers they stay as they are, where the device multiplies stacks of codes; the products are those of plain
  // ones.
  const at::NoGradGuard no_gradient;
  const c10::Device device = golden::device();
  const auto held = load_model(folder.path, {.dtype = at::kBFloat16, .device = device, .answers_only = true}),
             plain = load_model(folder.path, {.dtype = at::kBFloat16, .device = device});
  held->visit([&](const std::string& name, Param& p) {
    EXPECT_EQ(ops::is_quantised(p.data), p.turned && ops::multiplies_codes(device, at::kBFloat16)) << name;
  });
  const at::Tensor ids = at::arange(1, 20, at::kLong).to(device);
  const auto logits = [&](const Model& model) {
    Step step = packed_step({19}, device);
    return model.head(model.forward({ids}, step), step).to(at::kCPU, at::kFloat);
  };
  const at::Tensor want = logits(*plain);
  EXPECT_LT((logits(*held) - want).norm().item<double>(), 0.02 * want.norm().item<double>());
  for (auto& [name, t] : tensors)
    if (name.ends_with(kMxfp4Scales)) t = t.to(at::kFloat);
  Folder wrong;
  fs::copy_file(folder.path / "config.json", wrong.path / "config.json");
  write_tensors(wrong.path, tensors);
  const std::string text = refusal(Fault::Model, [&] { load_model(wrong.path, {.dtype = at::kFloat}); });
  expect_says(text, "experts.gate_up_proj_scales: found F32, expected bytes (U8)");
}

TEST(Weights, EverySpellingOfTheConfigMeansTheSameModel) {
  for (const char* name : {"qwen2", "qwen2_sliding", "qwen3", "qwen3_yarn", "qwen3_moe_norm", "llama3"}) {
    const auto dir = golden::models() / name / "checkpoint";
    const auto shapes = [&](const char* file) {
      const Json config = Json::parse(read_file(dir / file));
      const auto model = make_model(config);
      Step step = packed_step({40}, at::kCPU);
      model->begin(step);
      const Turn& turn = step.turns[0];
      return std::pair(disk_shapes(*model).size(), turn.cos.sum().item<double>() + 3 * turn.sin.sum().item<double>());
    };
    EXPECT_EQ(shapes("config.json"), shapes("config.as_saved_by_transformers.json")) << name;
    EXPECT_EQ(shapes("config.json"), shapes("config.as_saved_by_transformers_5.json")) << name;
  }
}

TEST(Weights, MappedWeightsAreNotCopied) {
  const auto model = load_model(golden::models() / "qwen2/checkpoint", {.dtype = at::kBFloat16});
  model->visit([](const std::string& name, Param& p) { EXPECT_TRUE(p.mapped) << name; });
  const auto owned =
      load_model(golden::models() / "qwen2/checkpoint",
                 {.dtype = at::kBFloat16, .own = [](const std::string& n) { return n.ends_with("norm.weight"); }});
  owned->visit([](const std::string& name, Param& p) { EXPECT_EQ(p.mapped, !name.ends_with("norm.weight")) << name; });
}

// Each rank reads its part of what is cut (experts, an embedding's rows) and all of the rest.
TEST(Weights, APartOfAMeshIsReadByTheCuts) {
  const auto dir = golden::models() / "qwen3_moe_norm/checkpoint";
  const auto whole = load_model(dir, {});
  std::map<std::string, at::Tensor> expected;
  whole->visit([&](const std::string& name, Param& p) { expected[name] = p.data; });
  const MeshSizes sizes{.tp = 3, .ep = 2};
  test::FakeWorld world;
  int cut = 0, mapped = 0;
  for (int r = 0; r < 6; ++r) {
    test::FakeMesh mesh(MeshLayout(sizes, 6, r), world);
    const auto mine = make_model(read_model_config(dir));
    mine->place(mesh);
    load_weights(*mine, TensorFolder(dir), {.dtype = at::kBFloat16});
    mine->visit([&](const std::string& name, Param& p) {
      at::Tensor part = expected[name].to(at::kBFloat16);
      for (const Cut& c : p.cuts) {
        const Range range = part_of(part.size(c.dim), c, mesh.rank(c.axis), mesh.size(c.axis));
        part = part.narrow(c.dim, range.begin, range.size), cut += mesh.size(c.axis) > 1;
      }
      EXPECT_TRUE(at::equal(p.data, part)) << name << " of rank " << r;
      mapped += p.mapped && p.local_shape() != p.full;
    });
  }
  EXPECT_GT(cut, 0);
  EXPECT_GT(mapped, 0) << "rows of a mapped file need no copy";
}

TEST(Weights, EverythingWrongIsReportedAtOnce) {
  Folder folder;
  const auto dir = golden::models() / "qwen2/checkpoint";
  fs::copy_file(dir / "config.json", folder.path / "config.json");
  const TensorFolder original(dir);
  std::vector<std::pair<std::string, at::Tensor>> tensors{{"model.layers.7.extra", at::zeros({2})}};
  for (const auto& name : original.names()) {
    if (name == "model.norm.weight") continue;
    tensors.emplace_back(name, name == "model.layers.0.mlp.up_proj.weight" ? at::zeros({3, 5}) : original.tensor(name));
  }
  write_safetensors(folder.path / "model.safetensors", tensors);
  const auto text = refusal(Fault::Model, [&] { load_model(folder.path, {}); });
  expect_says(text, "1 missing");
  expect_says(text, "model.norm.weight");
  expect_says(text, "model.layers.0.mlp.up_proj.weight: found [3, 5], expected [160, 64]");
  expect_says(text, "model.layers.7.extra");
}

// What other tools write of the same weights: no prefix, a shared weight under the head's name, experts as one tensor.
TEST(Weights, OtherNamesOfTheSameTensorsLoad) {
  const auto rewritten = [](const char* name, const auto& rename) {
    Folder folder;
    const auto dir = golden::models() / name / "checkpoint";
    fs::copy_file(dir / "config.json", folder.path / "config.json");
    const auto model = load_model(dir, {.dtype = at::kBFloat16});
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    const auto add = [&](const std::string& tensor, const at::Tensor& data) {
      if (const std::string to = rename(tensor); !to.empty()) tensors.emplace_back(to, data);
    };
    each_disk_tensor(*model, [&](const DiskTensor& t) { add(t.name, t.data); });
    model->visit([&](const std::string& n, Param& p) {
      if (!p.pieces.empty()) add(n, in_one(p));
    });
    write_safetensors(folder.path / "model.safetensors", tensors);
    write_safetensors(folder.path / "model-00001-of-00001.safetensors", {{"stale", at::zeros({1})}});
    std::ofstream(folder.path / "model.safetensors.index.json")
        << R"({"weight_map": {"stale": "model-00001-of-00001.safetensors"}})";
    const auto again = load_model(folder.path, {.dtype = at::kBFloat16});
    const auto before = tensors_of(*model), after = tensors_of(*again);
    for (const auto& [key, tensor] : before) EXPECT_TRUE(at::equal(tensor, after.at(key))) << name << " " << key;
  };
  const auto bare = [](const std::string& n) { return n.starts_with("model.") ? n.substr(6) : n; };
  const auto single = [](const std::string& n) {
    return n.find(".experts.") == std::string::npos || n.ends_with("_proj");
  };
  rewritten("qwen2", bare);
  rewritten("qwen2", [](const std::string& n) { return n == "model.embed_tokens.weight" ? "lm_head.weight" : n; });
  rewritten("qwen3_moe_norm", [&](const std::string& n) { return single(n) ? n : ""; });
  rewritten("qwen3_moe_norm", [&](const std::string& n) { return single(n) ? bare(n) : ""; });
}

// A stack of one piece, saved over what stood in the folder in one file or in shards.
TEST(Weights, OneExpertAndOtherShardsBefore) {
  Json config = preset_config("tiny-moe");
  config["num_experts"] = config["num_experts_per_tok"] = 1;
  Folder folder;
  std::ofstream(folder.path / "config.json") << config.dump();
  const auto model = make_model(config);
  model->visit([](const std::string&, Param& p) { p.data = at::zeros(p.full, at::kBFloat16); });
  for (const int64_t most : {int64_t{1} << 30, int64_t{100'000}, int64_t{1} << 30}) {
    model->visit([](const std::string&, Param& p) { p.data += 1; });
    save_weights(*model, folder.path, most, at::kBFloat16);
    const auto again = load_model(folder.path, {.dtype = at::kBFloat16});
    const auto before = tensors_of(*model), after = tensors_of(*again);
    for (const auto& [key, tensor] : before) EXPECT_TRUE(at::equal(tensor, after.at(key))) << key;
  }
}

// A model of numbers leaves the words' head out, whatever it is called.
TEST(Weights, AHeadOfNumbersLeavesTheOtherOut) {
  for (const char* name : {"qwen2_vl", "ovis2_5", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"}) {
    const auto dir = golden::models() / name / "checkpoint";
    const auto model = make_model(read_model_config(dir), Head::Scalar);
    load_weights(*model, TensorFolder(dir), {.fresh = [](const std::string& param, const std::vector<int64_t>& shape) {
      return param.ends_with("score.weight") ? at::zeros(shape) : at::Tensor();
    }});
    EXPECT_EQ(model->head_weight().size(0), 1) << name;
  }
}

// Layers that guess tokens ahead are not read, and stay in what is saved.
TEST(Weights, TensorsThatNobodyReadsAreCarriedOver) {
  Folder with, saved;
  const auto dir = golden::models() / "qwen2/checkpoint";
  for (const Folder* folder : {&with, &saved}) fs::copy_file(dir / "config.json", folder->path / "config.json");
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const TensorFolder original(dir);
  for (const auto& name : original.names()) tensors.emplace_back(name, original.tensor(name));
  const at::Tensor ahead = at::randn({4, 6}).to(at::kHalf);
  tensors.emplace_back("mtp.fc.weight", ahead);
  write_tensors(with.path, tensors);
  const auto source = std::make_shared<const TensorFolder>(with.path);
  const auto model = make_model(read_model_config(with.path));
  const UnreadTensors unread = load_weights(*model, *source, {.dtype = at::kBFloat16});
  EXPECT_EQ(unread.ahead, std::vector<std::string>{"mtp.fc.weight"});
  EXPECT_TRUE(unread.speech.empty());
  save_weights(*model, saved.path, 100'000, at::kBFloat16, {source, unread.ahead});
  EXPECT_TRUE(at::equal(TensorFolder(saved.path).tensor("mtp.fc.weight"), ahead));
  EXPECT_EQ(TensorFolder(saved.path).names().size(), tensors.size());
}

TEST(Weights, QuantisationsThatAreNotReadAreRefused) {
  Json config = preset_config("tiny");
  config["quantization_config"] = {{"quant_method", "quip"}, {"bits", 4}};
  expect_says(refusal(Fault::Model, [&] { make_model(config); }), "'quip', which is not read; read are awq (gemm)");
  Folder folder;
  const auto dir = golden::models() / "qwen2/checkpoint";
  fs::copy_file(dir / "config.json", folder.path / "config.json");
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const TensorFolder original(dir);
  for (const auto& name : original.names())
    tensors.emplace_back(
        name, name.ends_with("up_proj.weight") ? original.tensor(name).to(at::kChar) : original.tensor(name));
  write_safetensors(folder.path / "model.safetensors", tensors);
  expect_says(refusal(Fault::Model, [&] { load_model(folder.path, {}); }), "up_proj.weight: found I8, expected");
}

TEST(Weights, UnknownModelNamesTheNearest) {
  const auto text = refusal(Fault::Model, [] { make_model(Json{{"model_type", "qwen33"}}); });
  expect_says(text, "nearest: qwen3");
  expect_says(text, "lists the ");
  expect_says(refusal(Fault::Model, [] { make_model(Json::object()); }), "model_type");
  Json config = preset_config("tiny");
  config["num_attention_heads"] = 7;
  expect_says(refusal(Fault::Model, [&] { make_model(config); }), "multiple");
  config = preset_config("tiny");
  config["hidden_size"] = "wide";
  expect_says(refusal(Fault::Model, [&] { make_model(config); }), "hidden_size");
  config = preset_config("tiny");
  config["rope_scaling"] = {{"rope_type", "spiral"}, {"factor", 2}};
  expect_says(refusal(Fault::Model, [&] { make_model(config); }), "spiral");
}

TEST(Weights, EveryPresetMakesAModel) {
  for (const auto& name : preset_names()) {
    const Json config = preset_config(name);
    const auto model = make_model(config, natural_head(config));
    EXPECT_GT(disk_shapes(*model).size(), 10u) << name;
  }
  EXPECT_THROW(preset_config("qwen2.5-0.6b"), Error);
}

TEST(Weights, MissingFolderAndFilesAreNamed) {
  Folder folder;
  expect_says(refusal(Fault::Model, [&] { load_model(folder.path / "nowhere", {}); }), "does not exist");
  expect_says(refusal(Fault::Model, [&] { load_model(folder.path, {}); }), "config.json");
  std::ofstream(folder.path / "config.json") << "{";
  expect_says(refusal(Fault::Model, [&] { load_model(folder.path, {}); }), "no valid JSON");
  std::ofstream(folder.path / "config.json") << preset_config("tiny").dump();
  std::ofstream(folder.path / "training_args.bin") << "x";
  EXPECT_EQ(refusal(Fault::Model, [&] { load_model(folder.path, {}); }).find("holds"), std::string::npos);
  std::ofstream(folder.path / "model.gguf") << "x";
  expect_says(refusal(Fault::Model, [&] { load_model(folder.path, {}); }), "model.gguf: give that file itself");
  fs::remove(folder.path / "model.gguf");
  std::ofstream(folder.path / "pytorch_model-00001-of-00002.bin") << "x";
  expect_says(refusal(Fault::Model, [&] { load_model(folder.path, {}); }), "pytorch_model.bin.index.json");
}

}  // namespace
}  // namespace apus
