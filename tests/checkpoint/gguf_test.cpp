// SPDX-License-Identifier: Apache-2.0
// Models in GGUF files against float64 arithmetic on their dequantised weights: logits, greedy answers.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <cstring>

#include "base/registry.h"
#include "checkpoint/gguf_export.h"
#include "checkpoint/gguf_folder.h"
#include "checkpoint/weights.h"
#include "engine/answer/answer_all.h"
#include "engine/engine.h"
#include "gguf/model.h"
#include "models/spec/family.h"
#include "ops/quantised.h"
#include "tests/folder.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class GgufCheckpoint : public ::testing::TestWithParam<std::string> {
 protected:
  GgufCheckpoint() : dir(test::source_dir() / "tests/data/gguf" / GetParam()) {
    ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
    folder = gguf_folder(dir / "model.gguf");
    golden = SafetensorsFile::open(dir / "golden.safetensors");
  }
  ~GgufCheckpoint() override { ::unsetenv("XDG_CACHE_HOME"); }
  test::Folder cache;
  fs::path dir, folder;
  std::shared_ptr<SafetensorsFile> golden;
  c10::Device device = golden::device();
};

TEST_P(GgufCheckpoint, LogitsAndGreedyAnswers) {
  c10::AutoGradMode no_grad(false);
  const auto model = load_model(folder, {.dtype = at::kFloat, .device = device});
  const at::Tensor ids = golden->tensor("input_ids").to(at::kLong), wanted = golden->tensor("logits"),
                   answers = golden->tensor("greedy_new_ids").to(at::kLong);
  std::vector<std::vector<int32_t>> prompts, new_ids;
  for (int64_t r = 0; r < ids.size(0); ++r) {
    Step step = packed_step({static_cast<int32_t>(ids.size(1))}, device);
    const at::Tensor hidden = model->forward(ids[r].to(device), step);
    const double largest = wanted[r].abs().max().item<double>();
    EXPECT_LT(golden::max_abs(model->head(hidden, step), wanted[r]), 1e-4 * largest) << "row " << r;
    const auto list = [](const at::Tensor& row) {
      return std::vector<int32_t>(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.size(0));
    };
    prompts.push_back(list(ids[r].contiguous())), new_ids.push_back(list(answers[r].contiguous()));
  }
  const Sampling greedy{.temperature = 0, .max_new_tokens = answers.size(1), .ignore_eos = true};
  Engine engine(*model, at::TensorOptions().dtype(at::kFloat).device(device), EngineSpec{.cache_bytes = 8 << 20});
  const auto got = generate(engine, prompts, greedy);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].ids(), new_ids[i]) << got[i].error;
}

// Held as the file has them, weights are what they are when they are made plain, but for a rounding of their scales.
TEST_P(GgufCheckpoint, WeightsHeldAsTheyAreInTheFile) {
  c10::AutoGradMode no_grad(false);
  const LoadOptions plainly{.dtype = at::kBFloat16, .device = device};
  const auto plain = load_model(folder, plainly);
  const Json config = read_model_config(folder);
  const auto held = make_model(config);
  const auto quantised = held_weights(config, {}, folder);
  LoadOptions as_held = plainly;
  as_held.quantised = quantised.get();
  load_weights(*held, TensorFolder(folder), as_held);
  std::map<std::string, at::Tensor> want;
  plain->visit([&](const std::string& name, Param& p) { want[name] = p.data.to(at::kCPU, at::kFloat); });
  int64_t layers = 0;
  held->visit([&](const std::string& name, Param& p) {
    if (!ops::is_quantised(p.data)) return;
    ++layers;
    EXPECT_LT(golden::max_abs(ops::plain(p.data), want[name]), 0.01 * want[name].abs().max().item<double>()) << name;
  });
  EXPECT_GE(layers, 4 * held->shape().layers);
  quant::Wish wish;
  wish.method = "bnb", wish.bits = 4;
  EXPECT_NE(test::refusal(Fault::Usage, [&] { held_weights(config, wish, folder); }).find("leave the flag out"),
            std::string::npos);
}

// As answers are made: tables of words stay as they are in the file, and x is rounded to eight bits, or not. A sequence
// has the same answer alone and among others.
TEST_P(GgufCheckpoint, AnswersByItsOwnCodes) {
  c10::AutoGradMode no_grad(false);
  const Json config = read_model_config(folder);
  const auto quantised = held_weights(config, {}, folder);
  const auto load = [&](ops::Products products) {
    auto model = make_model(config);
    load_weights(*model, TensorFolder(folder),
                 {.dtype = at::kBFloat16,
                  .device = device,
                  .quantised = quantised.get(),
                  .products = products,
                  .answers_only = true});
    model->visit_modules([](const std::string&, Module& m) { m.prepare_inference(); });
    return model;
  };
  const at::Tensor ids = golden->tensor("input_ids").to(at::kLong), wanted = golden->tensor("logits");
  const double bound = config.contains("num_experts") ? 0.3 : 0.06;  // rounded, a token may meet another expert
  for (const ops::Products products : {ops::Products::Exact, ops::Products::Int8}) {
    SCOPED_TRACE(products == ops::Products::Int8 ? "int8" : "exact");
    const auto model = load(products);
    int64_t tables = 0;
    model->visit([&](const std::string& name, Param& p) {
      tables += p.tied.empty() && (name == model->embed_name() + ".weight" || name == model->head_name() + ".weight") &&
                ops::is_quantised(p.data);
    });
    EXPECT_GE(tables, 1);
    std::vector<std::vector<int32_t>> prompts;
    for (int64_t r = 0; r < ids.size(0); ++r) {
      Step step = packed_step({static_cast<int32_t>(ids.size(1))}, device);
      const at::Tensor logits = model->head(model->forward(ids[r].to(device), step), step);
      const at::Tensor miss = logits.to(at::kCPU, at::kDouble) - wanted[r].to(at::kDouble);
      EXPECT_LT((miss.norm() / wanted[r].to(at::kDouble).norm()).item<double>(), bound) << "row " << r;
      std::vector<int32_t> prompt;
      for (int64_t i = 0; i < ids.size(1) - r; ++i) prompt.push_back(static_cast<int32_t>(ids[r][i].item<int64_t>()));
      prompts.push_back(prompt);
    }
    const Sampling greedy{.temperature = 0, .max_new_tokens = 12, .ignore_eos = true};
    Engine engine(*model, at::TensorOptions().dtype(at::kBFloat16).device(device), EngineSpec{.cache_bytes = 8 << 20});
    const auto together = generate(engine, prompts, greedy);
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(generate(engine, {prompts[i]}, greedy)[0].ids(), together[i].ids()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GgufCheckpoint,
                         ::testing::Values("llama_q8_0", "qwen3_moe_q8_0", "qwen2_q4_0", "qwen2_q8_0", "qwen2_q4_k_m",
                                           "qwen2_q6_k"));

class GgufFamilies : public ::testing::TestWithParam<std::string> {
 protected:
  GgufFamilies() { ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1); }
  ~GgufFamilies() override { ::unsetenv("XDG_CACHE_HOME"); }

  // Six layers, with a vocabulary of its own and random numbers everywhere, as its family usually is.
  static Json config_of(const std::string& name) {
    Json config = read_model_config(golden::models() / name / "checkpoint");
    for (const char* key :
         {"layer_types", "mlp_layer_types", "no_rope_layers", "bos_token_id", "eos_token_id", "pad_token_id"})
      config.erase(key);
    config["vocab_size"] = 608, config["num_hidden_layers"] = 6;
    if (name == "exaone4") config["sliding_window"] = nullptr;  // of its models with fewer than 64 layers
    if (config.contains("query_pre_attn_scalar")) config["query_pre_attn_scalar"] = config["head_dim"];
    return config;
  }
  void write(const Json& config) const {
    const auto model = make_model(config);
    model->visit([](const std::string&, Param& p) {
      if (p.tied.empty()) p.data = at::randn(p.full) * 0.2;
    });
    fs::create_directories(from());
    write_file_atomic(from() / "config.json", config.dump());
    save_weights(*model, from(), int64_t{1} << 30, at::kFloat);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(test::source_dir() / "tests/data/gguf/llama_q8_0/hf_checkpoint" / file, from() / file);
  }
  fs::path from() const { return cache.path / "from"; }
  fs::path file() const { return cache.path / "model.gguf"; }
  void export_it() const { export_gguf({.from = from(), .to = file(), .mix = find_mix("f32"), .name = "it"}); }
  test::Folder cache;
};

TEST_P(GgufFamilies, GoIntoTheFileAndComeBack) {
  c10::AutoGradMode no_grad(false);
  at::manual_seed(3);
  const Json config = config_of(GetParam());
  write(config);
  export_it();
  const fs::path folder = gguf_folder(file());
  EXPECT_EQ(read_model_config(folder)["model_type"], config["model_type"]);
  const at::Tensor ids = at::randint(608, {24}, at::kLong);
  const auto logits = [&](const fs::path& dir) {
    const auto model = load_model(dir, {.dtype = at::kFloat, .device = golden::device()});
    Step step = packed_step({24}, golden::device());
    return model->head(model->forward(ids.to(golden::device()), step), step).to(at::kCPU);
  };
  const at::Tensor want = logits(from());
  EXPECT_LT(golden::max_abs(logits(folder), want), 2e-5 * want.abs().max().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Types, GgufFamilies,
                         ::testing::Values("gemma2", "gemma3", "phi3", "phi3_longrope", "smollm3", "olmo2", "granite",
                                           "glm4", "seed_oss", "ernie4_5", "llama3", "qwen3", "starcoder2", "cohere2",
                                           "exaone4", "hunyuan_v1_dense", "hunyuan_v1_moe", "afmoe", "dots1",
                                           "exaone_moe", "olmo3"));

// Bytes alone, fewer than the smallest table has rows.
void write_tiny_tokenizer(const fs::path& dir) {
  Json vocab = Json::object();
  for (int c = 33; c < 113; ++c) vocab[std::string(1, static_cast<char>(c))] = c - 33;
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json end = {{"id", 80},        {"content", "<|end|>"}, {"single_word", false}, {"lstrip", false},
                    {"rstrip", false}, {"normalized", false},  {"special", true}};
  const Json tokenizer = {{"version", "1.0"},
                          {"added_tokens", {end}},
                          {"pre_tokenizer", level},
                          {"decoder", level},
                          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  write_file_atomic(dir / "tokenizer.json", json_text(tokenizer));
  write_file_atomic(dir / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
}

// The folders of tests/data/models whose families stand in GGUF files.
std::vector<std::string> gguf_goldens() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden::models()))
    if (const fs::path config = entry.path() / "checkpoint/config.json"; fs::exists(config)) {
      const auto type = Json::parse(read_file(config)).value("model_type", "");
      if (Registry<GgufFamily>::of().find(type)) names.push_back(entry.path().filename());
    }
  std::sort(names.begin(), names.end());
  return names;
}

// Why some of them are refused: their tiny shapes have what files of the architecture cannot say.
const std::map<std::string, std::string> kRefused = {
    {"afmoe", "other windows"},
    {"baichuan", "logits, branches or embeddings are scaled"},
    {"dots1", "other windows"},
    {"exaone4", "other windows"},
    {"exaone_moe", "other windows"},
    {"gemma2", "attention scores"},
    {"gemma3", "other windows"},
    {"ling_lite", "the first Ling"},
    {"llama4_text", "told positions"},
    {"llama_dynamic", "stretched by 'dynamic'"},
    {"llama_longrope", "stretched by 'longrope'"},
    {"mellum", "feed-forwards of some layers"},
    {"minicpm3", "logits, branches or embeddings are scaled"},
    {"mistral", "other windows"},
    {"phimoe", "their experts"},
    {"qwen2_moe", "their experts"},
    {"qwen2_sliding", "other windows"},
    {"qwen3_moe_nonorm", "their experts"},
    {"smollm3", "told positions"},
};

class GgufGoldens : public GgufFamilies {
 protected:
  // Logits of a checkpoint, or of the file made of it in this format.
  at::Tensor logits(const fs::path& dir, const at::Tensor& ids) const {
    const auto model = load_model(dir, {.dtype = at::kFloat, .device = golden::device()});
    Step step = packed_step({static_cast<int32_t>(ids.size(0))}, golden::device());
    return model->head(model->forward(ids.to(golden::device()), step), step).to(at::kCPU);
  }
  at::Tensor logits_in(const char* mix, const at::Tensor& ids) const {
    const fs::path out = cache.path / (std::string(mix) + ".gguf");
    export_gguf({.from = from(), .to = out, .mix = find_mix(mix), .name = "it"});
    return logits(gguf_folder(out), ids);
  }
};

TEST_P(GgufGoldens, GiveTheSameLogitsFromTheFile) {
  c10::AutoGradMode no_grad(false);
  fs::copy(golden::models() / GetParam() / "checkpoint", from(), fs::copy_options::recursive);
  write_tiny_tokenizer(from());
  Json config = read_model_config(from());
  config.erase("time_step_min");  // which files do not say
  write_file_atomic(from() / "config.json", config.dump());
  if (const auto why = kRefused.find(GetParam()); why != kRefused.end())
    return test::expect_says(test::refusal(Fault::Model, [&] { export_it(); }), why->second);
  at::manual_seed(3);
  const at::Tensor ids = at::randint(90, {24}, at::kLong), want = logits(from(), ids);
  const auto miss = [&](const at::Tensor& got) {
    return ((got - want).to(at::kDouble).norm() / want.to(at::kDouble).norm()).item<double>();
  };
  // A file of Mamba has what A_log becomes: it comes back within a rounding.
  EXPECT_LT(miss(logits_in("f32", ids)), golden::device().is_cpu() ? 1e-6 : 3e-6);
  // A token may meet another expert where its weights are rounded.
  const bool experts = describe_model(read_model_config(from())).shape.experts > 0;
  EXPECT_LT(miss(logits_in("q8_0", ids)), experts ? 0.3 : 0.1);
  EXPECT_LT(miss(logits_in("q4_k_m", ids)), experts ? 0.6 : 0.3);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufGoldens, ::testing::ValuesIn(gguf_goldens()),
                         [](const auto& info) { return info.param; });

// Of gpt-oss, whose experts stay the bytes that they are.
TEST_F(GgufFamilies, ExpertsOfMxfp4KeepTheirBits) {
  c10::AutoGradMode no_grad(false);
  at::manual_seed(3);
  Json config = config_of("gpt_oss");
  config["hidden_size"] = config["intermediate_size"] = 64;
  write(config);
  export_gguf({.from = from(), .to = file(), .mix = find_mix("mxfp4_moe"), .name = "it"});
  const fs::path folder = gguf_folder(file());
  const TensorFolder tensors(folder);
  EXPECT_FALSE(tensors.find("model.layers.0.mlp.experts.gate_up_proj"));
  ASSERT_TRUE(tensors.find("model.layers.0.mlp.experts.gate_up_proj_blocks"));
  const auto model = load_model(folder, {.dtype = at::kFloat, .device = golden::device()});
  const auto original = load_model(from(), {.dtype = at::kFloat, .device = golden::device()});
  std::map<std::string, at::Tensor> want;
  original->visit([&](const std::string& name, Param& p) { want[name] = p.data.to(at::kCPU); });
  model->visit([&](const std::string& name, Param& p) {
    const at::Tensor miss = p.data.to(at::kCPU) - want[name];
    const bool experts = name.find("experts") != std::string::npos && p.data.dim() == 3;
    EXPECT_LT((miss.norm() / want[name].norm()).item<double>(), experts ? 0.15 : 0.01) << name;
  });
}

// What such a file cannot say is refused rather than lost.
TEST_F(GgufFamilies, AreRefusedWhereTheyDifferFromTheUsual) {
  const auto refused = [&](const char* name, const char* key, const Json& value, const char* says) {
    fs::remove_all(from());
    Json config = config_of(name);
    config[key] = value;
    write(config);
    test::expect_says(test::refusal(Fault::Model, [&] { export_it(); }), says);
  };
  refused("gemma3", "query_pre_attn_scalar", 20, "attention scores");
  refused("gemma3", "rope_local_base_freq", 5e4, "positions");
  refused("gemma2", "hidden_activation", "silu", "activation");
  refused("smollm3", "no_rope_layer_interval", 3, "positions");
  refused("mistral", "sliding_window", 8, "windows");
  refused("exaone4", "sliding_window", 8, "windows");
  refused("starcoder2", "use_bias", false, "biases");
}

// A checkpoint in HuggingFace's format gives the file that llama.cpp's own tools made of it.
TEST(GgufExport, TensorsAndTokensAreThoseOfLlamaCpp) {
  for (const char* name : {"llama_q8_0", "qwen3_moe_q8_0"}) {
    const test::Folder folder;
    const fs::path dir = test::source_dir() / "tests/data/gguf" / name, file = folder.path / "out.gguf";
    export_gguf({.from = dir / "hf_checkpoint", .to = file, .mix = find_mix("q8_0"), .name = "golden"});
    const MappedFile mine(file), theirs(dir / "model.gguf");
    const GgufHeader made = parse_gguf(mine.data(), mine.size(), "mine"),
                     wanted = parse_gguf(theirs.data(), theirs.size(), "theirs");
    ASSERT_EQ(made.tensors.size(), wanted.tensors.size()) << name;
    for (size_t i = 0; i < made.tensors.size(); ++i) {
      const GgufTensor &a = made.tensors[i], &b = wanted.tensors[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.shape, b.shape) << a.name;
      EXPECT_EQ(a.type, b.type) << a.name;
      ASSERT_EQ(a.bytes, b.bytes) << a.name;
      EXPECT_EQ(std::memcmp(mine.data() + a.begin, theirs.data() + b.begin, static_cast<size_t>(a.bytes)), 0) << a.name;
    }
    for (const auto& [key, value] : wanted.settings) {
      if (key == "tokenizer.ggml.bos_token_id" || key == "tokenizer.chat_template") continue;  // not in the checkpoint
      const GgufValue* own = made.find(key);
      ASSERT_TRUE(own) << key;
      EXPECT_EQ(own->kind, value.kind) << key;
      EXPECT_EQ(own->held, value.held) << key;
    }
  }
}

TEST(GgufExport, WhatAFileCannotSayIsRefused) {
  const test::Folder folder;
  const auto refused = [&](const fs::path& from) {
    return test::refusal(Fault::Model, [&] {
      export_gguf({.from = from, .to = folder.path / "out.gguf", .mix = find_mix("q8_0"), .name = "x"});
    });
  };
  test::expect_says(refused(golden::models() / "bamba/checkpoint"), "are not written as GGUF; these are: afmoe");
  test::expect_says(refused(golden::models() / "qwen2_sliding/checkpoint"), "through other windows than is usual");
  EXPECT_FALSE(fs::exists(folder.path / "out.gguf"));
}

// What was quantised is written again in another format, and read.
TEST(GgufExport, AGgufFileIsACheckpointToo) {
  const test::Folder cache;
  ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
  const fs::path from = gguf_folder(test::source_dir() / "tests/data/gguf/llama_q8_0/model.gguf"),
                 file = cache.path / "f32.gguf";
  export_gguf({.from = from, .to = file, .mix = find_mix("f32"), .name = "x"});
  const TensorFolder before(from), after(gguf_folder(file));
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : before.names())
    EXPECT_TRUE(at::equal(before.tensor(name), after.tensor(name))) << name;
  // Plain tensors are the file's own pages, but for those whose rows are put into another order.
  EXPECT_TRUE(after.maps(after.tensor("model.layers.0.mlp.up_proj.weight")));
  EXPECT_FALSE(after.maps(after.tensor("model.layers.0.self_attn.q_proj.weight")));
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace apus
