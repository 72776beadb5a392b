// SPDX-License-Identifier: Apache-2.0
// DeepSeek-VL2: SigLIP as timm has it, over one square of all of a picture and a grid of squares of it; 2 x 2 patches
// become one row, and a row of its own ends each line; DeepSeek's experts with usual or latent attention.
#include "models/spec/read_deepseek_vl2.h"

#include "base/error.h"
#include "media/mosaic.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

namespace {
// What its config.json leaves out, as its own configuration has it.
Json language_says() {
  return {{"vocab_size", 102400},
          {"hidden_size", 4096},
          {"intermediate_size", 11008},
          {"moe_intermediate_size", 1407},
          {"num_hidden_layers", 30},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 32},
          {"routed_scaling_factor", 1.0},
          {"kv_lora_rank", 512},
          {"q_lora_rank", 1536},
          {"qk_rope_head_dim", 64},
          {"v_head_dim", 128},
          {"qk_nope_head_dim", 128},
          {"topk_method", "greedy"},
          {"scoring_func", "softmax"},
          {"norm_topk_prob", false},
          {"first_k_dense_replace", 0},
          {"moe_layer_freq", 1},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},
          {"n_group", 1},
          {"topk_group", 1},
          {"attention_bias", false},
          {"use_mla", true}};
}

DecoderSpec read_experts(const Config& said) {
  Json text = language_says();
  for (const auto& [key, value] : said.json().items())
    if (!value.is_null() || key == "q_lora_rank") text[key] = value;
  const Config c(text);
  const std::string method = c.text("topk_method", ""), scores = c.text("scoring_func", "");
  const bool sigmoids = scores == "sigmoid" && method == "noaux_tc", latent = c.flag("use_mla", true);
  const bool plain = scores == "softmax" && method == "greedy" && !c.flag("norm_topk_prob", false);
  require(sigmoids ? latent : plain, Fault::Model, "config.json: language_config: scoring_func '", scores,
          "' with topk_method '", method, "', use_mla ", latent, " and norm_topk_prob ",
          c.flag("norm_topk_prob", false),
          " is not supported; softmax with greedy is, and with use_mla sigmoid with noaux_tc");
  require(latent || c.number("routed_scaling_factor", 1) == 1, Fault::Model,
          "config.json: language_config: routed_scaling_factor must be 1 where use_mla is false");
  text["model_type"] = sigmoids ? "deepseek_v3" : latent ? "deepseek_v2" : "deepseek";
  return read_language(Config(text), "language.");
}

VisionSpec read_eyes(const Config& c) {
  const std::string name = c.text("model_name", "siglip_so400m_patch14_384");
  require(name.starts_with("siglip") && !c.flag("class_token", false), Fault::Model,
          "config.json: vision_config: model_name '", name, "' is not supported, only SigLIP without class_token");
  const int64_t width = c.integer("width", 1024);
  return timm_siglip({.width = width,
                      .layers = c.integer("layers", 24),
                      .heads = c.integer("heads", 16),
                      .ffn = static_cast<int64_t>(static_cast<double>(width) * c.number("mlp_ratio", 4)),
                      .patch = c.integer("patch_size", 16),
                      .side = c.integer("image_size", 384)});
}

void use_squares(const Config& c, VisionSpec& tower, int64_t hidden) {
  const std::string type = c.text("projector_type", "downsample_mlp_gelu");
  const int64_t depth = c.integer("depth", 2), width = c.integer("n_embed", hidden);
  require(type == "downsample_mlp_gelu" && depth == 2 && width == hidden && !c.flag("token_pooling", false),
          Fault::Model, "config.json: projector_config: projector_type '", type, "' of depth ", depth, " and n_embed ",
          width, " is not supported: downsample_mlp_gelu of depth 2 and of the text's ", hidden, " is");
  tower.merger = "projector.layers", tower.out = hidden, tower.merger_inner = hidden * c.integer("mlp_ratio", 1);
  tower.names.merger_norm = nullptr, tower.names.merger_in = "0", tower.names.merger_out = "2";
  tower.join = c.integer("downsample_ratio", 2), tower.cells = CellForm::ByNumber;
  require(tower.join > 0 && tower.join <= 16, Fault::Model, "config.json: projector_config: downsample_ratio is ",
          tower.join);
}

Json experts_of(const std::string& size) {
  Json says = {{"n_routed_experts", 64},     {"n_shared_experts", 2},         {"num_experts_per_tok", 6},
               {"first_k_dense_replace", 1}, {"moe_intermediate_size", 1408}, {"topk_method", "greedy"},
               {"q_lora_rank", nullptr}};
  if (size == "tiny")
    says.update({{"use_mla", false}, {"moe_intermediate_size", 896}});
  else if (size.empty())
    says.update({{"n_routed_experts", 72},
                 {"moe_intermediate_size", 1536},
                 {"topk_method", "noaux_tc"},
                 {"scoring_func", "sigmoid"},
                 {"norm_topk_prob", true},
                 {"routed_scaling_factor", 2.0}});
  return says;
}
}  // namespace

DecoderSpec read_deepseek_vl2(const Config& c) {
  DecoderSpec spec = read_experts(part_of(c, "language_config"));
  spec.tied = false;
  SeeingSpec seeing{.vision = read_eyes(part_of(c, "vision_config")), .forms = {{}}};
  VisionSpec& tower = seeing.vision;
  use_squares(part_of(c, "projector_config"), tower, spec.shape.hidden);
  tower.name = "vision", tower.newline = "image_newline", tower.separator = "view_seperator";
  const std::string tag = c.text("tile_tag", "2D"), first = c.text("global_view_pos", "head");
  require(tag == "2D" && first == "head", Fault::Model, "config.json: tile_tag '", tag, "' and global_view_pos '",
          first, "' are not supported, only '2D' and 'head'");
  seeing.mosaic = std::make_shared<const MosaicForm>(read_squares_in_lines(c.json()));
  require(seeing.mosaic->side == tower.tile, Fault::Model, "config.json: candidate_resolutions do not fit squares of ",
          tower.tile, " pixels");
  seeing.image_token = c.integer("image_token_id", kTokenizersChoice);
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

Json deepseek_vl2_says(const std::string& size) {
  Json sizes = Json::array();
  for (int64_t high = 1; high <= 9; ++high)
    for (int64_t wide = 1; high * wide <= 9; ++wide) sizes.push_back({384 * wide, 384 * high});
  return {{"architectures", {"DeepseekVLV2ForCausalLM"}},
          {"image_token_id", size == "small" ? 102399 : 128815},
          {"candidate_resolutions", std::move(sizes)},
          {"language_config", experts_of(size)},
          {"projector_config", {{"input_dim", 1152}, {"n_embed", nullptr}, {"projector_type", "downsample_mlp_gelu"}}},
          {"vision_config",
           {{"image_size", 384},
            {"model_name", "siglip_so400m_patch14_384"},
            {"width", 1152},
            {"layers", 27},
            {"mlp_ratio", 3.7362},
            {"patch_size", 14}}}};
}

}  // namespace apus
