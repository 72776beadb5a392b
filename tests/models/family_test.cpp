// SPDX-License-Identifier: Apache-2.0
// A family is described once: what the plan makes of a description is what the modules make of it, and what the table
// of families promises holds.
#include "models/spec/family.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>

#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/random.h"
#include "models/spec/presets.h"
#include "plan/model_facts.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

void expect_the_models_own(const Json& config, const std::string& name) {
  const ModelFacts facts = model_facts(config);
  const auto model = make_model(config, natural_head(config));
  std::set<std::string> linear;  // an expert's matrix is a part of a stacked parameter, and not among the names below
  model->visit_modules([&](const std::string& module, Module& m) {
    if (dynamic_cast<Linear*>(&m)) linear.insert(module + ".weight");
  });
  std::vector<std::tuple<std::string, std::vector<int64_t>, bool>> real, planned;
  model->visit([&](const std::string& parameter, Param& p) {
    if (p.tied.empty()) real.emplace_back(parameter, p.full, linear.count(parameter) > 0);
  });
  for (const ParamFacts& p : facts.params) planned.emplace_back(p.name, p.shape, p.linear);
  EXPECT_EQ(real, planned) << name;
  EXPECT_EQ(facts.kv_heads, model->shape().kv_heads) << name;
  EXPECT_EQ(facts.positions, model->shape().max_positions) << name;
}

TEST(PlanFacts, AreTheModelsOwnParameters) {
  for (const std::string& name : preset_names()) expect_the_models_own(preset_config(name), name);
}

// Keys that files leave out, and those that count in some families only.
TEST(PlanFacts, AreTheModelsOwnWhateverTheFileSays) {
  for (const char* name : {"tiny", "qwen3-0.6b", "tiny-moe", "qwen1.5-moe-a2.7b", "llama3-8b", "mistral-7b"}) {
    const Json plain = preset_config(name);
    for (const char* key : {"num_key_value_heads", "max_position_embeddings", "head_dim", "intermediate_size",
                            "num_experts_per_tok", "decoder_sparse_step", "mlp_only_layers", "tie_word_embeddings"}) {
      Json config = plain;
      config.erase(key);
      const bool needed = std::string(key) == "intermediate_size" && !plain.contains("num_experts");
      if (!needed) expect_the_models_own(config, str(name, " without ", key));
    }
    const Json said = {{"attention_bias", true},
                       {"mlp_bias", true},
                       {"qkv_bias", false},
                       {"num_experts", 0},
                       {"num_key_value_heads", nullptr}};
    for (const auto& [key, value] : said.items()) {
      Json config = plain;
      config[key] = value;
      expect_the_models_own(config, str(name, " with ", key));
    }
  }
}

// A tower that gives rows of 16 numbers.
void shrink_sight(Json& config) {
  if (config.contains("image_grid_pinpoints")) config["image_grid_pinpoints"] = {{8, 16}, {16, 8}};
  Json& vision = config["vision_config"];
  const bool named_twice = vision.contains("out_hidden_size");
  const Json small = {{"depth", 3},
                      {"num_heads", 2},
                      {"patch_size", 2},
                      {"num_hidden_layers", 3},
                      {"num_attention_heads", 2},
                      {"image_size", 8},
                      {"intermediate_size", 24},
                      {"window_size", 8},
                      {"fullatt_block_indexes", {1}},
                      {"num_position_embeddings", 16},
                      {"deepstack_visual_indexes", {0, 2}}};
  for (const auto& [key, value] : small.items())
    if (vision.contains(key)) vision[key] = value;
  if (config.contains("query_num")) config["query_num"] = 3, config["resampler_heads"] = 2;
  vision[named_twice ? "out_hidden_size" : "embed_dim"] = 16;
  vision["hidden_size"] = 16;
  for (const char* token : {"image_token_id", "image_token_index"}) config[token] = 38;
  for (const char* token : {"im_patch_token", "im_patch_id"})
    if (config.contains(token)) config[token] = 38;
  for (const char* token : {"video_token_id", "video_token_index"}) config[token] = 39;
}

void shrink_hearing(Json& config) {
  for (const char* token : {"audio_token_id", "audio_token_index", "audio_start_token_id"}) config[token] = 37;
  const Json ears = {
      {"d_model", 8},       {"encoder_layers", 2}, {"encoder_attention_heads", 2}, {"encoder_ffn_dim", 12},
      {"num_mel_bins", 10}, {"output_dim", 16},    {"downsample_hidden_size", 6}};
  const Json usual = {{"hidden_size", 8},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 2},
                      {"intermediate_size", 16},
                      {"num_mel_bins", 10}};
  config["audio_config"].update(config["audio_config"].contains("num_hidden_layers") ? usual : ears);
  if (config["audio_config"].contains("audio_embed_dim")) config["audio_config"]["audio_embed_dim"] = 6;
}

// A model whose text part is one of its own.
void shrink_nested(Json& config, const char* text, const Json& small) {
  for (const auto& [key, value] : small.items())
    if (config[text].contains(key)) config[text][key] = value;
  if (config.contains("visual_tokenizer_config")) {
    config["visual_tokenizer_config"]["vocab_size"] = 20;
    config["visual_tokenizer_config"]["backbone_config"].update({{"hidden_size", 8},
                                                                 {"num_hidden_layers", 2},
                                                                 {"num_attention_heads", 2},
                                                                 {"intermediate_size", 12},
                                                                 {"image_size", 8},
                                                                 {"patch_size", 2}});
  }
  const char* const sight = config.contains("vit_config") ? "vit_config" : "vision_config";
  if (!config.contains(sight)) return;
  Json& vision = config[sight];
  vision.update({{"hidden_size", 8},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"intermediate_size", 12},
                 {"image_size", 8},
                 {"patch_size", 2}});
  if (config.contains("force_image_size")) config["force_image_size"] = 8;
  if (vision.contains("image_default_input_size")) {  // Molmo2's
    vision.erase("image_size"), vision.erase("patch_size");
    vision.update({{"image_default_input_size", {8, 8}}, {"image_patch_size", 2}, {"image_num_pos", 16}});
    config["adapter_config"].update({{"hidden_size", 8},
                                     {"num_attention_heads", 2},
                                     {"intermediate_size", 12},
                                     {"text_hidden_size", 16},
                                     {"vit_layers", {-1, -2}}});
    config["adapter_config"].update({{"num_key_value_heads", 2}, {"head_dim", 4}});
    config["image_patch_id"] = 42;
  }
  if (vision.contains("depth")) vision.update({{"depth", 2}, {"num_heads", 2}, {"out_hidden_size", 16}});
  if (vision.contains("mm_embed_dim")) vision.update({{"mm_embed_dim", 12}, {"mm_posemb_size", 8}});
  if (vision.contains("text_hidden_size")) vision["text_hidden_size"] = 16;
  if (vision.contains("output_channels")) vision["mlp_dim"] = 16;
  if (vision.contains("width") && vision["width"].is_number())
    vision.update({{"width", 8}, {"layers", 2}, {"heads", 2}});
  else if (vision.contains("width")) {
    vision["width"]["sam_vit_b"].update(
        {{"width", 8}, {"heads", 2}, {"layers", 2}, {"patch_size", 2}, {"downsample_channels", {6, 8}}});
    vision["width"]["clip-l-14-224"].update(
        {{"width", 8}, {"heads", 2}, {"layers", 2}, {"image_size", 8}, {"patch_size", 2}});
  }
  if (vision.contains("params"))
    vision["params"].update(
        {{"width", 8}, {"layers", 2}, {"heads", 2}, {"ffn", 12}, {"image_size", 8}, {"patch_size", 2}});
  if (vision.contains("sam_config")) {
    vision["sam_config"].update({{"hidden_size", 8},
                                 {"num_attention_heads", 2},
                                 {"num_hidden_layers", 2},
                                 {"image_size", 8},
                                 {"patch_size", 2},
                                 {"downsample_channels", {6, 8}}});
    vision["encoder_config"].update({{"hidden_size", 8},
                                     {"num_attention_heads", 2},
                                     {"num_key_value_heads", 1},
                                     {"num_hidden_layers", 2},
                                     {"intermediate_size", 12}});
  }
  for (const char* key : {"vt_hidden_size", "vt_num_hidden_layers", "vt_num_attention_heads", "vt_intermediate_size"})
    if (vision.contains(key)) vision[key] = vision[key + 3];
  if (vision.contains("vision_output_dim"))  // Llama 4's
    vision.update({{"intermediate_size", 32},
                   {"vision_output_dim", 12},
                   {"projector_input_dim", 12},
                   {"projector_output_dim", 12}});
  if (vision.contains("tokenize_function")) vision["vocab_size"] = 20;
  if (config.contains("visual_indicator_token_ids")) config["visual_indicator_token_ids"] = {33, 34, 35, 36, 37};
  if (vision.contains("head_dim")) vision["head_dim"] = 4;
  if (vision.contains("num_key_value_heads")) vision["num_key_value_heads"] = 1;
  if (config.contains("insert_layer_id")) config["insert_layer_id"] = 0;
  if (config.contains("visual_vocab_size")) config["visual_vocab_size"] = 20;
  if (config.contains("scale_factor")) config["scale_factor"] = 2;
  if (config.contains("image_grid_pinpoints")) config["image_grid_pinpoints"] = {{8, 16}, {16, 8}};
  for (const char* token : {"image_token_id", "image_token_index", "media_placeholder_token_id"})
    if (config.contains(token)) config[token] = 38;
  for (const char* token : {"video_token_id", "video_token_index"})
    if (config.contains(token)) config[token] = 39;
}

// Llama 3.2 Vision: one layer of the text part reads pictures, and one layer of the tower is taken.
void shrink_canvas(Json& config) {
  if (config["model_type"] != "mllama") return;
  config["text_config"]["cross_attention_layers"] = {1};
  config["vision_config"].erase("num_attention_heads");
  config["vision_config"].update({{"attention_heads", 2},
                                  {"num_global_layers", 1},
                                  {"max_num_tiles", 2},
                                  {"intermediate_layers_indices", {0}},
                                  {"vision_output_dim", 16}});
}

// Gemma 3n: small towers; tokens of their own stand behind the words.
void shrink_gemma3n(Json& config) {
  if (config["model_type"] != "gemma3n") return;
  const Json block = {{"block_type", "uir"}, {"out_chs", 8}, {"stride", 2}, {"dw_kernel_size_mid", 3}};
  const Json stages = Json::array({Json::array({block}), Json::array({block})});
  config["vision_config"] = {
      {"vocab_size", 2}, {"vocab_offset", 34}, {"model_args", {{"msfa_output_resolution", 1}, {"block_args", stages}}}};
  config["audio_config"] = {{"vocab_size", 4},
                            {"vocab_offset", 36},
                            {"hidden_size", 8},
                            {"input_feat_size", 10},
                            {"conf_num_hidden_layers", 2},
                            {"conf_num_attention_heads", 2},
                            {"sscp_conv_channel_size", {3, 2}}};
  config.update({{"vision_soft_tokens_per_image", 1}, {"audio_soft_tokens_per_image", 3}, {"image_token_id", 35}});
}

// Phi-4-multimodal: small towers, in the words of transformers or of its authors.
void shrink_phi4(Json& config) {
  const bool own = config["model_type"] == "phi4mm";
  if (!own && config["model_type"] != "phi4_multimodal") return;
  config["vision_config"] = {{"hidden_size", 8},         {"intermediate_size", 12}, {"num_hidden_layers", 3},
                             {"num_attention_heads", 2}, {"image_size", 8},         {"crop_size", 8},
                             {"patch_size", 2},          {"image_token_id", 38}};
  const Json ears = {{"num_blocks", 2}, {"input_size", 10}, {"ext_pw_out_channel", 8}, {"audio_token_id", 39}};
  if (!own) {
    config["audio_config"] = {{"hidden_size", 8},        {"num_attention_heads", 2},
                              {"intermediate_size", 12}, {"depthwise_separable_out_channel", 8},
                              {"nemo_conv_channels", 3}, {"bias_max_distance", 4}};
    return config["audio_config"].update(ears);
  }
  config["embd_layer"]["image_embd_layer"]["crop_size"] = 8;
  Json& audio = config["audio_processor"]["config"];
  audio.update({{"attention_dim", 8},
                {"attention_heads", 2},
                {"linear_units", 12},
                {"depthwise_seperable_out_channel", 8},
                {"nemo_conv_settings", {{"conv_channels", 3}}}});
  audio.update(ears);
}

// Whisper's two halves.
void shrink_whisper(Json& config) {
  if (config["model_type"] != "whisper") return;
  for (const char* half : {"encoder", "decoder"})
    config.update({{str(half, "_layers"), 2}, {str(half, "_attention_heads"), 2}, {str(half, "_ffn_dim"), 24}});
  config.update({{"d_model", 16}, {"num_mel_bins", 8}, {"max_source_positions", 6}, {"decoder_start_token_id", 38}});
}

// ERNIE 4.5 VL's experts for text and for what is seen; a head turns by two angles.
void shrink_experts_by_kind(Json& config) {
  const bool nested = config["model_type"] == "ernie4_5_vl_moe";
  if (!nested && config["model_type"] != "ernie4_5_moe_vl") return;
  Json& text = nested ? config["text_config"] : config;
  text["moe_intermediate_size"] = {6, 4};
  if (nested)
    text["rope_scaling"]["mrope_section"] = {1, 1, 0};
  else
    config.update({{"moe_num_experts", {8, 8}}, {"freq_allocation", 0}});
}

// One small shape of each family.
std::vector<Json> small_configs() {
  std::set<std::string> seen;
  std::vector<Json> all;
  const Json small = {{"hidden_size", 16},
                      {"num_hidden_layers", 3},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"intermediate_size", 24},
                      {"vocab_size", 40},
                      {"head_dim", 8},
                      {"max_position_embeddings", 64},
                      {"global_head_dim", 8},
                      {"num_global_key_value_heads", 2},
                      {"hidden_size_per_layer_input", 4},
                      {"num_kv_shared_layers", 0},
                      {"top_k_experts", 2},
                      {"num_experts", 8},
                      {"num_local_experts", 8},
                      {"n_routed_experts", 8},
                      {"moe_num_experts", 8},
                      {"num_experts_per_tok", 2},
                      {"n_group", 2},
                      {"topk_group", 1},
                      {"q_lora_rank", 12},
                      {"kv_lora_rank", 10},
                      {"qk_nope_head_dim", 6},
                      {"qk_rope_head_dim", 4},
                      {"v_head_dim", 5},
                      {"index_n_heads", 2},
                      {"index_head_dim", 6},
                      {"index_topk", 3},
                      {"rotary_dim", 4},
                      {"rotary_pct", 0.5},
                      {"partial_rotary_factor", 0.5},
                      {"moe_topk", 3},
                      {"moe_k", 3},
                      {"moe_intermediate_size", 6},
                      {"shared_expert_intermediate_size", 10},
                      {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                      {"attn_type_list", {0, 1, 0}},
                      {"full_attention_interval", 2},
                      {"linear_num_key_heads", 2},
                      {"linear_num_value_heads", 4},
                      {"linear_key_head_dim", 6},
                      {"linear_value_head_dim", 5},
                      {"attn_layer_indices", {1}},
                      {"mamba_d_ssm", 32},
                      {"mamba_n_heads", 4},
                      {"mamba_d_head", 8},
                      {"mamba_n_groups", 2},
                      {"mamba_d_state", 5},
                      {"num_heads", 4},
                      {"mm_tokens_per_image", 4},
                      {"n_groups", 2},
                      {"state_size", 5},
                      {"mamba_num_heads", 4},
                      {"mamba_head_dim", 8},
                      {"ssm_state_size", 5},
                      {"hybrid_override_pattern", "M*E"},
                      {"linear_num_heads", 2},
                      {"linear_head_dim", 6},
                      {"moe_shared_expert_intermediate_size", 10},
                      {"num_layers", 2},
                      {"ffn_hidden_size", 24},
                      {"expert_ffn_hidden_size", 6},
                      {"zero_expert_num", 3},
                      {"kv_channels", 8},
                      {"lru_width", 16},
                      {"hc_mult", 2},
                      {"compress_ratios", {0, 4, 128}},
                      {"compress_rates", {{"compressed_sparse_attention", 2}, {"heavily_compressed_attention", 3}}},
                      {"num_hash_layers", 1},
                      {"o_groups", 2},
                      {"o_lora_rank", 3},
                      {"ffn_config", {{"ffn_hidden_size", 6}, {"moe_num_experts", 8}, {"moe_top_k", 2}}},
                      {"tie_word_embeddings", false}};
  for (const std::string& name : preset_names()) {
    Json config = preset_config(name);
    if (!seen.insert(config["model_type"]).second) continue;
    const char* text = "text_config";
    for (const char* other : {"llm_config", "language_config"})
      if (config.contains(other)) text = other;
    for (const auto& [key, value] : small.items())
      if (config.contains(key)) config[key] = value;
    if (config.contains(text))
      shrink_nested(config, text, small);
    else if (config.contains("vision_config"))
      shrink_sight(config);
    if (config.contains("audio_config")) shrink_hearing(config);
    shrink_experts_by_kind(config);
    shrink_canvas(config);
    shrink_gemma3n(config);
    shrink_phi4(config);
    shrink_whisper(config);
    if (config.contains("rope_scaling") && config["rope_scaling"].contains("xdrope_section"))
      config["rope_scaling"]["xdrope_section"] = {1, 1, 1, 1};
    all.push_back(std::move(config));
  }
  return all;
}

// What files of any family may say, and may leave out (discarded).
const std::map<std::string, std::vector<Json>>& said() {
  const Json left_out = Json(Json::value_t::discarded);
  static const std::map<std::string, std::vector<Json>> all = {
      {"num_key_value_heads", {left_out, nullptr, 1, 4}},
      {"head_dim", {left_out, 4, 10}},
      {"max_position_embeddings", {left_out, 512}},
      {"tie_word_embeddings", {left_out, true}},
      {"attention_bias", {true, false}},
      {"attention_out_bias", {true, false}},
      {"mlp_bias", {true, false}},
      {"qkv_bias", {true, false}},
      {"use_bias", {true, false}},
      {"num_experts", {0, 5}},
      {"num_experts_per_tok", {left_out, 1}},
      {"decoder_sparse_step", {left_out, 2}},
      {"mlp_only_layers", {left_out, {0}, {1, 2}}},
      {"use_sliding_window", {true}},
      {"sliding_window", {left_out, nullptr, 8}},
      {"mamba_conv_bias", {true, false}},
      {"mamba_proj_bias", {true, false}},
      {"projectors_bias", {true, false}},
      {"mamba_d_head", {left_out, "auto"}},
      {"hidden_act", {left_out, "gelu", "relu"}},
      {"rope_scaling", {nullptr, {{"rope_type", "yarn"}, {"factor", 4}}, {{"type", "linear"}, {"factor", 2}}}},
  };
  return all;
}

TEST(Families, ThePlanIsTheModelsOwnForRandomConfigs) {
  const auto plain = small_configs();
  ASSERT_EQ(plain.size(), known_models().size());
  Random random(11);
  int models = 0, errors = 0;
  for (const Json& family : plain)
    for (int round = 0; round < 40; ++round) {
      Json config = family;
      for (const auto& [key, values] : said()) {
        if (random.below(3) > 0) continue;
        const Json& value = values[random.below(values.size())];
        if (value.is_discarded())
          config.erase(key);
        else
          config[key] = value;
      }
      try {
        expect_the_models_own(config, config.dump());
        ++models;
      } catch (const Error& e) {
        EXPECT_EQ(e.at.fault, Fault::Model) << e.what();
        EXPECT_THROW(make_model(config, natural_head(config)), Error) << config.dump();
        EXPECT_THROW(model_facts(config), Error) << config.dump();
        ++errors;
      }
    }
  EXPECT_GT(models, 4 * errors);
}

// Every parameter of every family gets a gradient, but those that are no weights.
TEST(Families, EachCanBeTrained) {
  const at::Device device = golden::device();
  for (const Json& config : small_configs()) {
    const auto model = make_model(config, natural_head(config));
    model->visit(
        [&](const std::string&, Param& p) { p.data = (at::randn(p.full) * 0.1).to(device).set_requires_grad(true); });
    Step step = packed_step({7, 5}, device);
    const at::Tensor ids = golden::ids_tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, device);
    const at::Tensor hidden_TD = model->forward(ids, step);
    (model->encoder() ? hidden_TD : model->head(hidden_TD, step)).pow(2).mean().backward();
    model->visit([&](const std::string& name, Param& p) {
      if (p.statistic || !p.trainable) return;
      ASSERT_TRUE(p.data.grad().defined()) << config["model_type"] << " " << name;
      EXPECT_TRUE(at::isfinite(p.data.grad()).all().item<bool>()) << config["model_type"] << " " << name;
    });
  }
}

}  // namespace
}  // namespace apus
