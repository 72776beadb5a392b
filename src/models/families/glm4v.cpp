// SPDX-License-Identifier: Apache-2.0
// GLM-4.1V and GLM-4.6V-Flash: GLM-4 that sees. Its tower turns by rows and columns and has learned positions besides;
// a convolution makes one row of four patches, and a gated feed-forward follows.
#include "models/families/glm4v.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_seeing.h"

namespace apus {

DecoderSpec read_glm_text(const Config& c, const char* type, const Json& unsaid, const Json& fixed) {
  Json text = {{"rms_norm_eps", 1e-5}};
  text.update(unsaid);
  text.update(part_of(c, "text_config").json());
  text.update(fixed);
  if (!text.contains("head_dim") || text["head_dim"].is_null())
    text["head_dim"] =
        Config(text).integer("hidden_size") / std::max<int64_t>(Config(text).integer("num_attention_heads"), 1);
  text["model_type"] = type;
  DecoderSpec spec = describe_model(text);
  use_layers_ahead(Config(text), spec);
  if (spec.ropes[0].sections.empty()) spec.ropes[0].sections = {8, 12, 12};
  return spec;
}

}  // namespace apus

namespace apus::families::glm4v {

namespace {
struct GlmTower {
  int64_t width = 1536, heads = 12, out = 4096, ffn = 13696;
  bool bias = false;
};

Json tower_part(const Config& c, const GlmTower& unsaid) {
  Json vision = {{"depth", 24},
                 {"hidden_size", unsaid.width},
                 {"num_heads", unsaid.heads},
                 {"patch_size", 14},
                 {"out_hidden_size", unsaid.out},
                 {"intermediate_size", unsaid.ffn},
                 {"attention_bias", unsaid.bias}};
  vision.update(part_of(c, "vision_config").json());
  return vision;
}

VisionSpec read_glm_tower(const Config& v) {
  VisionSpec s = read_vision(v, "hidden_size");
  const std::string act = v.text("hidden_act", "silu");
  require(act == "silu", Fault::Model, "config.json: vision_config: hidden_act '", act,
          "' is not supported in this family, only silu");
  s.out = v.integer("out_hidden_size");
  s.norm = {NormKind::Rms, v.number("rms_norm_eps", 1e-5)};
  s.act = TowerActivation::Silu;
  s.patch_bias = true, s.qkv_bias = v.flag("attention_bias", false);
  VisionNames& n = s.names;
  n.gate = "mlp.gate_proj", n.up = "mlp.up_proj", n.down = "mlp.down_proj";
  n.norm_out = "post_layernorm", n.merger_conv = "downsample", n.merger_before = "proj";
  n.merger_norm = "post_projection_norm", n.merger_gate = "gate_proj";
  n.merger_in = "up_proj", n.merger_out = "down_proj";
  s.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  s.merger_bias = false;
  return s;
}

// Images and the frames of videos have one token; a frame is a picture of its own behind the times of others.
DecoderSpec seeing_glm(const Config& c, DecoderSpec text, VisionSpec tower) {
  require(c.find("image_token_id"), Fault::Model, "config.json: 'image_token_id' is missing");
  SeeingSpec seeing{.vision = std::move(tower), .time = TimeRule::Apart, .forms = {{}}};
  use_sight(c, text, std::move(seeing));
  SeeingSpec one_token = *text.seeing;
  one_token.video_token = one_token.image_token;
  text.seeing = std::make_shared<const SeeingSpec>(std::move(one_token));
  return text;
}
}  // namespace

}  // namespace apus::families::glm4v

namespace apus {

DecoderSpec with_glm_tower(const Config& c, DecoderSpec text) {
  const Json said = families::glm4v::tower_part(c, {});
  const Config vision(said);
  VisionSpec s = families::glm4v::read_glm_tower(vision);
  s.ffn = s.out, s.merger_inner = vision.integer("intermediate_size"), s.block_bias = false;
  s.names.norm_in = "post_conv_layernorm", s.names.table = "embeddings.position_embedding";
  s.table_side = vision.integer("image_size", 336) / s.patch;
  s.table_form = TableForm::Cubic, s.table_behind_norm = true;
  require(s.table_side > 0, Fault::Model, "config.json: vision_config: image_size is smaller than patch_size ",
          s.patch);
  return families::glm4v::seeing_glm(c, std::move(text), std::move(s));
}

DecoderSpec with_glm_ocr_tower(const Config& c, DecoderSpec text) {
  const Json said =
      families::glm4v::tower_part(c, {.width = 1024, .heads = 16, .out = 1536, .ffn = 4096, .bias = true});
  const Config vision(said);
  VisionSpec s = families::glm4v::read_glm_tower(vision);
  s.ffn = vision.integer("intermediate_size"), s.merger_inner = s.out * s.channels, s.block_bias = s.qkv_bias;
  s.names.q_norm = "attn.q_norm", s.names.k_norm = "attn.k_norm";
  s.qk_norm = s.norm, s.qk_norm_of_heads = true;
  return families::glm4v::seeing_glm(c, std::move(text), std::move(s));
}

Json glm_sight_says(int64_t begin_image, int64_t image, Json text, Json vision) {
  vision.update({{"depth", 24},
                 {"in_channels", 3},
                 {"patch_size", 14},
                 {"spatial_merge_size", 2},
                 {"temporal_patch_size", 2},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", 1e-5}});
  text.update({{"rms_norm_eps", 1e-5}});
  return {{"image_start_token_id", begin_image},
          {"image_end_token_id", begin_image + 1},
          {"video_start_token_id", begin_image + 2},
          {"video_end_token_id", begin_image + 3},
          {"image_token_id", image},
          {"video_token_id", image + 1},
          {"text_config", std::move(text)},
          {"vision_config", std::move(vision)}};
}

DecoderSpec read_glm4v(const Config& c) {
  const Config text = part_of(c, "text_config");
  const int64_t heads = text.integer("num_attention_heads", 32);
  const Json unsaid = {{"vocab_size", 151552},        {"hidden_size", 4096},       {"intermediate_size", 13696},
                       {"num_hidden_layers", 40},     {"num_attention_heads", 32}, {"max_position_embeddings", 32768},
                       {"partial_rotary_factor", 1.0}};
  require(heads > 0, Fault::Model, "config.json: text_config: num_attention_heads must be above 0");
  const Json fixed = {{"attention_bias", true}, {"head_dim", text.integer("hidden_size", 4096) / heads}};
  return with_glm_tower(c, read_glm_text(c, "glm4", unsaid, fixed));
}

Json glm4v_says() {
  const Json rope = {{"rope_type", "default"}, {"mrope_section", {8, 12, 12}}};
  return glm_sight_says(151339, 151343,
                        {{"model_type", "glm4v_text"}, {"partial_rotary_factor", 0.5}, {"rope_scaling", rope}},
                        {{"model_type", "glm4v"},
                         {"hidden_size", 1536},
                         {"num_heads", 12},
                         {"image_size", 336},
                         {"intermediate_size", 13696},
                         {"out_hidden_size", 4096},
                         {"attention_bias", false}});
}

}  // namespace apus

namespace apus::families::glm4v {

namespace {
// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm-4.1v-9b", 4096, 40, 32, 2, 0, 13696, 151552, 65536, 1e4, false, {}, glm4v_says()},
};
const RegisterFamily glm4v("glm4v", {.title = "GLM-4.1V",
                                     .architecture = "Glm4vForConditionalGeneration",
                                     .read = read_glm4v,
                                     .presets = presets});
}  // namespace

}  // namespace apus::families::glm4v
