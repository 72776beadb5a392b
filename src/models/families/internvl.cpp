// SPDX-License-Identifier: Apache-2.0
// InternVL 3 and 3.5 in transformers' layout; OpenGVLab's own is internvl_chat.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_internvl.h"
#include "models/spec/read_seeing.h"

namespace apus::families::internvl {

namespace {
// Transformers before 4.52, and what it writes to this day: everything below `language_model.`.
DiskForm native_before_nesting() {
  return {.renames = {{"model.language_model.", "language_model.model."},
                      {"lm_head.", "language_model.lm_head."},
                      {"model.vision_tower.", "vision_tower."},
                      {"model.multi_modal_projector.", "multi_modal_projector."}}};
}

}  // namespace

}  // namespace apus::families::internvl

namespace apus {

DecoderSpec read_native_internvl(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  VisionSpec tower = read_intern_tower(vision, {1024, 24, 16, 4096, 448, "layer_norm"});
  tower.name = "model.vision_tower", tower.merger = "model.multi_modal_projector";
  tower.qkv_bias = vision.flag("attention_bias", false);
  VisionNames& n = tower.names;
  n.patches = "embeddings.patch_embeddings.projection", n.first = "embeddings.cls_token";
  n.table = "embeddings.position_embeddings", n.blocks = "encoder.layer";
  n.norm1 = "layernorm_before", n.norm2 = "layernorm_after";
  n.qkv = nullptr, n.q = "attention.q_proj", n.k = "attention.k_proj", n.v = "attention.v_proj";
  n.proj = "attention.projection_layer", n.scale1 = "lambda_1", n.scale2 = "lambda_2";
  if (vision.flag("use_qk_norm", false)) n.q_norm = "attention.q_norm", n.k_norm = "attention.k_norm";
  n.merger_norm = "layer_norm", n.merger_in = "linear_1", n.merger_out = "linear_2";
  const Json* layer = c.find("vision_feature_layer");
  require((!layer || *layer == -1) && c.text("vision_feature_select_strategy", "default") == "default" &&
              vision.flag("use_mean_pooling", true) && vision.flag("use_absolute_position_embeddings", true),
          Fault::Model,
          "config.json: vision_feature_layer other than -1, vision_feature_select_strategy other than 'default', and "
          "a vision_config without use_mean_pooling or use_absolute_position_embeddings are not supported");
  DecoderSpec spec = read_language(part_of(c, "text_config"), "");
  spec.backbone = "model.language_model";
  return with_intern_tower(c, std::move(spec), std::move(tower), c.integer("image_token_id"),
                           {"model.language_model", "lm_head"}, {families::internvl::native_before_nesting(), {}});
}

}  // namespace apus

namespace apus::families::internvl {

namespace {
// How its tower stands in a GGUF file beside the text's, which is of any family.
void read_file_of_tower(const GgufSays& clip, Json& config) {
  Json& vision = config["vision_config"];
  for (const char* key : {"image_size", "patch_size"}) vision[key] = Json::array({vision[key], vision[key]});
  vision["norm_type"] = clip.tensor("v.blk.0.ln1.bias") ? "layer_norm" : "rms_norm";
  vision["attention_bias"] = clip.tensor("v.blk.0.attn_q.bias") != nullptr;
  vision["use_qk_norm"] = clip.tensor("v.blk.0.attn_q_norm.weight") != nullptr;
  config["downsample_ratio"] = 1.0 / static_cast<double>(clip.integer("vision.projector.scale_factor").value_or(2));
}
void read_pixels(const GgufSays& clip, Json& preprocessor) {
  for (const auto& [key, name] :
       {std::pair{"min_patches", "vision.preproc_min_tiles"}, {"max_patches", "vision.preproc_max_tiles"}})
    if (const auto tiles = clip.integer(name)) preprocessor[key] = *tiles;
}

GgufTower gguf_tower() {
  GgufTower tower = intern_gguf_tower("model.multi_modal_projector.", "layer_norm", "linear_1", "linear_2");
  const std::string begin = "model.vision_tower.";
  tower.part = "text_config", tower.begins = {{"model.", "model.language_model."}};
  tower.form.layers = begin + "encoder.layer.";
  tower.form.names.insert(tower.form.names.end(),
                          {{"layernorm_before", "ln1"},
                           {"layernorm_after", "ln2"},
                           {"attention.q_proj", "attn_q"},
                           {"attention.k_proj", "attn_k"},
                           {"attention.v_proj", "attn_v"},
                           {"attention.projection_layer", "attn_out"},
                           {"attention.q_norm", "attn_q_norm"},
                           {"attention.k_norm", "attn_k_norm"},
                           {"lambda_1", "ls1.weight"},
                           {"lambda_2", "ls2.weight"},
                           {begin + "embeddings.cls_token", "v.class_embd", {.ones_first = {3, 3}}},
                           {begin + "embeddings.position_embeddings", "v.position_embd.weight", {.ones_first = {3, 3}}},
                           {begin + "embeddings.patch_embeddings.projection", "v.patch_embd"}});
  tower.tokens = {{"image_token_id", "<IMG_CONTEXT>"}};
  tower.read = read_file_of_tower, tower.read_pixels = read_pixels;
  return tower;
}

// name         hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> native_presets = {
    {"internvl3-8b-hf",
     3584,
     28,
     28,
     4,
     0,
     18944,
     151674,
     32768,
     1e6,
     false,
     {},
     {{"text_config", {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}}}}},
};

const RegisterFamily internvl("internvl", {.title = "InternVL 3 and 3.5, transformers' layout",
                                           .architecture = "InternVLForConditionalGeneration",
                                           .read = read_native_internvl,
                                           .says = intern_says(),
                                           .presets = native_presets,
                                           .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::internvl
