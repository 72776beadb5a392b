// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V4 beside what all families are tested for: the names of its files, both styles of config.json, long texts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>

#include "checkpoint/shards.h"
#include "models/spec/family.h"
#include "models/spec/presets.h"
#include "tests/folder.h"
#include "tests/models/golden_batch.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

fs::path checkpoint() { return golden::models() / "deepseek_v4" / "checkpoint"; }

std::unique_ptr<Model> loaded(const fs::path& dir) {
  return load_model(dir,
                    {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
}

// Every tensor of the model in a file with the names of this form.
void write_as(const DiskForm& form, const fs::path& dir) {
  const auto model = load_model(checkpoint(), {.dtype = at::kFloat});
  model->set_disk_form(form);
  fs::copy_file(checkpoint() / "config.json", dir / "config.json");
  save_weights(*model, dir, int64_t{1} << 30, at::kFloat, {});
}

TEST(DeepseekV4, IsReadUnderAllNamesOfItsFiles) {
  const auto first = loaded(checkpoint());
  const std::vector<DiskForm> forms = describe_model(read_model_config(checkpoint())).forms;
  ASSERT_EQ(forms.size(), 3u);
  const std::vector<std::string> known = {"layers.1.attn.indexer.compressor.norm.weight",
                                          "model.layers.1.attn.indexer.compressor.norm.weight",
                                          "model.layers.1.self_attn.compressor.indexer.kv_norm.weight"};
  const std::vector<std::string> keys = {"layers.0.attn.kv_norm.weight", "model.layers.0.attn.norm.weight",
                                         "model.layers.0.self_attn.kv_norm.weight"};
  for (size_t i = 0; i < forms.size(); ++i) {
    test::Folder folder;
    write_as(forms[i], folder.path);
    const TensorFolder source(folder.path);
    EXPECT_TRUE(source.find(known[i])) << i;
    EXPECT_TRUE(source.find(keys[i])) << i;
    for (const std::string& name : source.names())
      if (name.ends_with("tid2eid")) EXPECT_EQ(source.find(name)->type, DiskType::I64);
    const auto again = loaded(folder.path);
    std::map<std::string, at::Tensor> before;
    first->visit([&](const std::string& name, Param& p) { before[name] = p.data; });
    again->visit([&](const std::string& name, Param& p) { EXPECT_TRUE(at::equal(p.data, before.at(name))) << name; });
    for (const std::string& name : source.names()) EXPECT_EQ(forms[i].disk_name(forms[i].own_name(name)), name);
  }
}

TEST(DeepseekV4, BothStylesOfConfigAreOne) {
  const Json newer = read_model_config(checkpoint());
  Json older = newer;
  for (const char* key :
       {"layer_types", "mlp_layer_types", "compress_rates", "rope_parameters", "partial_rotary_factor"})
    older.erase(key);
  older.update({{"compress_ratios", {0, 4, 128, 4, 0}},
                {"compress_rate_csa", 2},
                {"compress_rate_hca", 4},
                {"num_hash_layers", 1},
                {"qk_rope_head_dim", 8},
                {"rope_scaling",
                 {{"type", "yarn"},
                  {"factor", 4},
                  {"beta_fast", 32},
                  {"beta_slow", 1},
                  {"original_max_position_embeddings", 256}}}});
  const DecoderSpec one = describe_model(newer), other = describe_model(older);
  EXPECT_EQ(one.ropes, other.ropes);
  EXPECT_EQ(one.rope_of, other.rope_of);
  EXPECT_EQ(one.shape.keeps, other.shape.keeps);
  EXPECT_EQ(one.shape.latent, other.shape.latent);
  EXPECT_EQ(one.shape.state.numbers(), other.shape.state.numbers());
  for (size_t i = 0; i < one.feed_forward.size(); ++i) {
    const auto by_word = [&](const DecoderSpec& spec) {
      return std::get<MixtureSpec>(spec.feed_forward[i]).names.by_word != nullptr;
    };
    EXPECT_EQ(one.pooled->pools[i].tokens, other.pooled->pools[i].tokens);
    EXPECT_EQ(by_word(one), by_word(other));
  }
}

TEST(DeepseekV4, RefusesTheCodesOfItsPublishedFiles) {
  Json config = preset_config("deepseek-v4-flash");
  config["expert_dtype"] = "fp4";
  config["quantization_config"] = {{"quant_method", "fp8"}, {"scale_fmt", "ue8m0"}};
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(config); }), "ue8m0");
}

// Scores of a long text are made of some queries at a time: what is in the second part of a longer one is in the first
// of a shorter one.
TEST(DeepseekV4, LongTextsAreReadInParts) {
  c10::AutoGradMode no_grad(false);
  const auto model = loaded(checkpoint());
  const at::Tensor id_T = at::randint(3, 160, {2000}, at::kLong).to(golden::device());
  const auto read = [&](int32_t length) {
    Step step = packed_step({length}, golden::device());
    return model->forward(id_T.narrow(0, 0, length), step);
  };
  EXPECT_LT(golden::max_abs(read(2000).narrow(0, 1100, 100), read(1200).narrow(0, 1100, 100)), 2e-4);
}

}  // namespace
}  // namespace apus
