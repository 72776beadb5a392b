// SPDX-License-Identifier: Apache-2.0
// InternVL 2.5 to 3.5: a tower that looks at square tiles, each with a row of its own before its patches, and any text
// model. Two layouts: `internvl_chat` as OpenGVLab writes it, and transformers' own, `internvl`.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus {

namespace {
// A number, or the first of a pair: files have sides in both ways.
int64_t side(const Config& c, const char* key, int64_t otherwise) {
  const Json* value = c.find(key);
  if (!value || !value->is_array()) return c.integer(key, otherwise);
  const std::vector<int64_t> sides = c.integers(key);
  require(!sides.empty() && sides.front() == sides.back(), Fault::Model, "config.json: vision_config: '", key,
          "' must be one number, or the same number twice");
  return sides.front();
}

// What a class in transformers takes where the file leaves a key out. OpenGVLab's are those of the tower of 6 billion.
struct TowerDefaults {
  int64_t width, layers, heads, ffn, image;
  const char* norm;
};

// What both layouts say in the same words.
VisionSpec read_tower(const Config& v, const TowerDefaults& d) {
  VisionSpec s;
  s.width = v.integer("hidden_size", d.width), s.layers = v.integer("num_hidden_layers", d.layers);
  s.heads = v.integer("num_attention_heads", d.heads), s.ffn = v.integer("intermediate_size", d.ffn);
  s.channels = v.integer("num_channels", 3);
  s.patch = side(v, "patch_size", 14), s.tile = side(v, "image_size", d.image);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && s.patch > 0 &&
              s.tile > 0 && s.tile % (2 * s.patch) == 0 && s.channels > 0 && s.ffn > 0,
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          ", patch_size ", s.patch, " and image_size ", s.tile, " do not fit together");
  const std::string norm = v.text("norm_type", d.norm), act = v.text("hidden_act", "gelu");
  require((norm == "layer_norm" || norm == "rms_norm") && act == "gelu", Fault::Model,
          "config.json: vision_config: norm_type '", norm, "' and hidden_act '", act,
          "' are not supported, only layer_norm, rms_norm and gelu");
  s.norm = {norm == "rms_norm" ? NormKind::Rms : NormKind::MeanAndBias, v.number("layer_norm_eps", 1e-6)};
  s.act = TowerActivation::Gelu;
  s.time_patch = 1, s.patch_has_time = false, s.patch_bias = true, s.turned = false;
  s.table_side = s.tile / s.patch, s.table_cubic = true;
  s.merger_norm_first = false, s.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  return s;
}

DecoderSpec with_sight(const Config& c, DecoderSpec spec, VisionSpec tower, int64_t token,
                       std::vector<std::string> language, std::vector<DiskForm> forms) {
  const double ratio = c.number("downsample_ratio", 0.5);
  require(ratio == 0.5, Fault::Model, "config.json: downsample_ratio ", ratio, " is not supported, only 0.5");
  require(token == kTokenizersChoice || (token >= 0 && token < spec.shape.vocab), Fault::Model,
          "config.json: image_token_id ", token, " must lie inside the vocabulary of ", spec.shape.vocab);
  tower.out = tower.merger_inner = spec.shape.hidden;
  SeeingSpec seeing{.vision = std::move(tower)};
  seeing.image_token = seeing.video_token = token;
  seeing.time = TimeRule::Text;
  seeing.language = std::move(language);
  seeing.tower = {seeing.vision.name}, seeing.aligner = {seeing.vision.merger};
  seeing.forms = std::move(forms);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

DecoderSpec read_chat(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  VisionSpec tower = read_tower(vision, {3200, 48, 25, 12800, 224, "rms_norm"});
  tower.name = "vision_model", tower.merger = "mlp1";
  tower.qkv_bias = vision.flag("qkv_bias", false);
  VisionNames& n = tower.names;
  n.patches = "embeddings.patch_embedding", n.first = "embeddings.class_embedding";
  n.table = "embeddings.position_embedding", n.blocks = "encoder.layers";
  n.scale1 = "ls1", n.scale2 = "ls2";
  if (vision.flag("qk_normalization", true)) n.q_norm = "attn.q_norm", n.k_norm = "attn.k_norm";
  n.merger_norm = "0", n.merger_in = "1", n.merger_out = "3";
  // Tiles of another size than the tower's own come by INPUT_SIZE or force_image_size: positions are interpolated.
  const Json* layer = c.find("select_layer");
  require(c.text("ps_version", "v1") == "v2" && (!layer || *layer == -1), Fault::Model,
          "config.json: ps_version 'v1' and a select_layer before the last belong to the first InternVL, which is not "
          "supported; 2.5 and later say 'v2' and -1");
  return with_sight(c, read_language(part_of(c, "llm_config"), "language_model."), std::move(tower),
                    c.integer("image_token_id", c.integer("img_context_token_id", kTokenizersChoice)),
                    {"language_model"}, {});
}

// Transformers before 4.52, and what it writes to this day: everything below `language_model.`.
DiskForm native_before_nesting() {
  return {.renames = {{"model.language_model.", "language_model.model."},
                      {"lm_head.", "language_model.lm_head."},
                      {"model.vision_tower.", "vision_tower."},
                      {"model.multi_modal_projector.", "multi_modal_projector."}}};
}

DecoderSpec read_native(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  VisionSpec tower = read_tower(vision, {1024, 24, 16, 4096, 448, "layer_norm"});
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
  return with_sight(c, std::move(spec), std::move(tower), c.integer("image_token_id"),
                    {"model.language_model", "lm_head"}, {native_before_nesting(), {}});
}

Json chat_tower(const char* text_type, const char* text_class, const char* chat) {
  return {{"template", chat},
          {"llm_config", {{"model_type", text_type}, {"architectures", {text_class}}, {"use_sliding_window", false}}}};
}

// name         hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"internvl3-2b",
     1536,
     28,
     12,
     2,
     0,
     8960,
     151674,
     32768,
     1e6,
     false,
     {},
     chat_tower("qwen2", "Qwen2ForCausalLM", "internvl2_5")},
    {"internvl3-8b",
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
     chat_tower("qwen2", "Qwen2ForCausalLM", "internvl2_5")},
    {"internvl3.5-8b",
     4096,
     36,
     32,
     8,
     128,
     12288,
     151936,
     40960,
     1e6,
     false,
     {},
     chat_tower("qwen3", "Qwen3ForCausalLM", "internvl2_5")},
};

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

const RegisterFamily internvl_chat("internvl_chat", {.title = "InternVL 2.5 to 3.5, OpenGVLab's layout",
                                                     .architecture = "InternVLChatModel",
                                                     .read = read_chat,
                                                     .says = {{"downsample_ratio", 0.5},
                                                              {"dynamic_image_size", true},
                                                              {"force_image_size", 448},
                                                              {"max_dynamic_patch", 12},
                                                              {"min_dynamic_patch", 1},
                                                              {"ps_version", "v2"},
                                                              {"select_layer", -1},
                                                              {"use_thumbnail", true},
                                                              {"vision_config",
                                                               {{"hidden_size", 1024},
                                                                {"num_hidden_layers", 24},
                                                                {"num_attention_heads", 16},
                                                                {"intermediate_size", 4096},
                                                                {"image_size", 448},
                                                                {"patch_size", 14},
                                                                {"norm_type", "layer_norm"},
                                                                {"layer_norm_eps", 1e-6},
                                                                {"hidden_act", "gelu"},
                                                                {"qkv_bias", true},
                                                                {"qk_normalization", false}}}},
                                                     .presets = presets});
const RegisterFamily internvl("internvl", {.title = "InternVL 3 and 3.5, transformers' layout",
                                           .architecture = "InternVLForConditionalGeneration",
                                           .read = read_native,
                                           .says = {{"downsample_ratio", 0.5},
                                                    {"image_token_id", 151667},
                                                    {"projector_hidden_act", "gelu"},
                                                    {"vision_feature_layer", -1},
                                                    {"vision_feature_select_strategy", "default"},
                                                    {"vision_config",
                                                     {{"hidden_size", 1024},
                                                      {"num_hidden_layers", 24},
                                                      {"num_attention_heads", 16},
                                                      {"intermediate_size", 4096},
                                                      {"image_size", {448, 448}},
                                                      {"patch_size", {14, 14}},
                                                      {"norm_type", "layer_norm"},
                                                      {"layer_norm_eps", 1e-6},
                                                      {"hidden_act", "gelu"},
                                                      {"attention_bias", true},
                                                      {"use_qk_norm", false}}}},
                                           .presets = native_presets});
}  // namespace

}  // namespace apus
