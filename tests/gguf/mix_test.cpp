// SPDX-License-Identifier: Apache-2.0
// Which tensor gets which format: as in files that llama-quantize wrote, and by rules that those are too small for.
#include "gguf/mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "gguf/model.h"
#include "tests/paths.h"

namespace apus {
namespace {

TEST(GgufMix, FormatsAndOrderAreThoseOfFilesThatLlamaQuantizeWrote) {
  for (const auto& [name, mix] : {std::pair{"qwen2_q4_0", "q4_0"},
                                  {"qwen2_q8_0", "q8_0"},
                                  {"qwen2_q4_k_m", "q4_k_m"},
                                  {"qwen2_q6_k", "q6_k"},
                                  {"llama_q8_0", "q8_0"},
                                  {"qwen3_moe_q8_0", "q8_0"}}) {
    const auto model = GgufModel::open(test::source_dir() / "tests/data/gguf" / name / "model.gguf");
    const GgufHeader& header = model->header();
    std::vector<GgufPlan::Tensor> tensors;
    for (const GgufTensor& t : header.tensors) tensors.push_back({t.name, GgmlType::F16, t.shape});
    EXPECT_TRUE(std::is_sorted(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return comes_before(a.name, b.name);
    })) << name;
    choose_types(tensors, *find_mix(mix),
                 {.architecture = "qwen2",
                  .layers = *header.integer(model->key("block_count")),
                  .heads = 4,
                  .kv_heads = 2,
                  .experts = header.integer(model->key("expert_count")).value_or(0),
                  .tied = true});
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(ggml_form(tensors[i].type).name, std::string(ggml_form(header.tensors[i].type).name))
          << name << " " << tensors[i].name;
    EXPECT_EQ(header.integer("general.file_type"), find_mix(mix)->file_type);
  }
}

std::map<std::string, std::string> types_of(const char* mix, int64_t layers, int64_t width = 256, int64_t experts = 0) {
  std::vector<GgufPlan::Tensor> tensors = {{"output.weight", GgmlType::F32, {100, width}},
                                           {"token_embd.weight", GgmlType::F32, {100, width}}};
  for (int64_t i = 0; i < layers; ++i)
    for (const char* part : {"attn_norm", "attn_output", "attn_qkv", "attn_v", "ffn_down"})
      tensors.push_back({"blk." + std::to_string(i) + "." + part + ".weight", GgmlType::F32, {width, width}});
  choose_types(tensors, *find_mix(mix),
               {.architecture = "llama", .layers = layers, .heads = 8, .kv_heads = 2, .experts = experts});
  std::map<std::string, std::string> out;
  for (const auto& t : tensors) out[t.name] = ggml_form(t.type).name;
  return out;
}

TEST(GgufMix, CountsMatricesThatTakeALargerFormat) {
  const auto larger = [](const char* mix, int64_t width) {
    std::vector<GgufPlan::Tensor> tensors = {{"blk.0.attn_norm.weight", GgmlType::F32, {width}},
                                             {"blk.0.attn_q.weight", GgmlType::F32, {width, width}},
                                             {"blk.0.ffn_up.weight", GgmlType::F32, {256, width}}};
    return choose_types(tensors, *find_mix(mix), {.architecture = "llama", .layers = 1, .heads = 8, .kv_heads = 2});
  };
  EXPECT_EQ(larger("q4_k_m", 256), 0);
  EXPECT_EQ(larger("q4_k_m", 576), 2) << "rows of SmolLM2-135M";
  EXPECT_EQ(larger("q8_0", 576), 0);
  EXPECT_EQ(larger("f16", 576), 0);
}

TEST(GgufMix, MediumMixesGiveTheFirstAndLastLayersAndEveryThirdMore) {
  const auto types = types_of("q4_k_m", 16);
  std::string more;
  for (int i = 0; i < 16; ++i) more += types.at("blk." + std::to_string(i) + ".ffn_down.weight") == "Q6_K" ? '+' : '.';
  EXPECT_EQ(more, "++..+..+..+..+++");
  EXPECT_EQ(types.at("blk.0.attn_v.weight"), "Q6_K");
  EXPECT_EQ(types.at("blk.2.attn_v.weight"), "Q4_K");
  EXPECT_EQ(types.at("output.weight"), "Q6_K");
  EXPECT_EQ(types.at("token_embd.weight"), "Q4_K");
  EXPECT_EQ(types.at("blk.0.attn_norm.weight"), "F32");
}

TEST(GgufMix, MediumMixesGiveJoinedQueriesKeysAndValuesMore) {
  EXPECT_EQ(types_of("q4_k_m", 2)["blk.0.attn_qkv.weight"], "Q5_K");
  EXPECT_EQ(types_of("q5_k_m", 2)["blk.1.attn_qkv.weight"], "Q6_K");
  EXPECT_EQ(types_of("q4_k_s", 2)["blk.0.attn_qkv.weight"], "Q4_K");
}

TEST(GgufMix, RowsThatAreNoWholeBlocksTakeAnotherFormat) {
  EXPECT_EQ(types_of("q4_k_m", 16, 96).at("blk.2.attn_output.weight"), "Q5_0");
  EXPECT_EQ(types_of("q5_k_m", 16, 96).at("blk.2.attn_output.weight"), "Q5_1");
  EXPECT_EQ(types_of("q6_k", 16, 96).at("blk.2.attn_output.weight"), "Q8_0");
  EXPECT_EQ(types_of("q4_0", 16, 80).at("blk.2.attn_output.weight"), "F16");
  EXPECT_EQ(types_of("q4_k_m", 16, 256, 8).at("blk.2.attn_output.weight"), "Q5_K");
  EXPECT_EQ(types_of("q4_k_m", 16, 256, 8).at("blk.2.attn_v.weight"), "Q8_0");
  EXPECT_EQ(types_of("bf16", 2).at("blk.0.attn_v.weight"), "BF16");
}

}  // namespace
}  // namespace apus
