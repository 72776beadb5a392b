// SPDX-License-Identifier: Apache-2.0
// InternVL 2.5 to 3.5 as OpenGVLab writes it: a tower that looks at square tiles, each with a row of its own before its
// patches, and any text model.
#include "models/families/internvl_chat.h"

#include "base/error.h"
#include "gguf/turns.h"
#include "models/spec/family.h"
#include "models/spec/read_internvl.h"
#include "models/spec/read_seeing.h"

namespace apus::families::internvl_chat {

Json says(Json vision) {
  return {{"downsample_ratio", 0.5}, {"dynamic_image_size", true}, {"force_image_size", 448},
          {"max_dynamic_patch", 12}, {"min_dynamic_patch", 1},     {"ps_version", "v2"},
          {"select_layer", -1},      {"use_thumbnail", true},      {"vision_config", std::move(vision)}};
}

namespace {
DecoderSpec read_chat(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  VisionSpec tower = read_intern_tower(vision, {3200, 48, 25, 12800, 224, "rms_norm"});
  use_first_names(tower, vision.flag("qk_normalization", true));
  tower.qkv_bias = vision.flag("qkv_bias", false);
  // Tiles of another size than the tower's own come by INPUT_SIZE or force_image_size: positions are interpolated.
  const Json* layer = c.find("select_layer");
  require(c.text("ps_version", "v1") == "v2" && (!layer || *layer == -1), Fault::Model,
          "config.json: ps_version 'v1' and a select_layer before the last belong to the first InternVL, which is not "
          "supported; 2.5 and later say 'v2' and -1");
  return with_intern_tower(c, read_language(part_of(c, "llm_config"), "language_model."), std::move(tower),
                           c.integer("image_token_id", c.integer("img_context_token_id", kTokenizersChoice)),
                           {"language_model"}, {});
}

Json chat_tower(const char* text_type, const char* text_class, const char* chat) {
  return {{"template", chat},
          {"llm_config", {{"model_type", text_type}, {"architectures", {text_class}}, {"use_sliding_window", false}}}};
}

// How its tower is written as a GGUF file, which is read as transformers' layout.
GgufTower gguf_tower() {
  GgufTower tower = intern_gguf_tower("mlp1.", "0", "1", "3");
  const std::string begin = "vision_model.";
  tower.only_written = true, tower.part = "llm_config";
  tower.begins = {{"model.", "language_model.model."}, {"lm_head.", "language_model.lm_head."}};
  tower.form.layers = begin + "encoder.layers.";
  tower.form.names.insert(tower.form.names.end(),
                          {{"norm1", "ln1"},
                           {"norm2", "ln2"},
                           {"attn.qkv", "attn_q", {.rows = query_block}},
                           {"attn.qkv", "attn_k", {.rows = key_block}},
                           {"attn.qkv", "attn_v", {.rows = value_block}},
                           {"attn.proj", "attn_out"},
                           {"attn.q_norm", "attn_q_norm"},
                           {"attn.k_norm", "attn_k_norm"},
                           {"ls1", "ls1.weight"},
                           {"ls2", "ls2.weight"},
                           {begin + "embeddings.class_embedding", "v.class_embd", {.ones_first = {3, 3}}},
                           {begin + "embeddings.position_embedding", "v.position_embd.weight", {.ones_first = {3, 3}}},
                           {begin + "embeddings.patch_embedding", "v.patch_embd"}});
  tower.tokens = {{"image_token_id", "<IMG_CONTEXT>"}};
  return tower;
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

const RegisterFamily internvl_chat("internvl_chat", {.title = "InternVL 2.5 to 3.5, OpenGVLab's layout",
                                                     .architecture = "InternVLChatModel",
                                                     .read = read_chat,
                                                     .says = says({{"hidden_size", 1024},
                                                                   {"num_hidden_layers", 24},
                                                                   {"num_attention_heads", 16},
                                                                   {"intermediate_size", 4096},
                                                                   {"image_size", 448},
                                                                   {"patch_size", 14},
                                                                   {"norm_type", "layer_norm"},
                                                                   {"layer_norm_eps", 1e-6},
                                                                   {"hidden_act", "gelu"},
                                                                   {"qkv_bias", true},
                                                                   {"qk_normalization", false}}),
                                                     .presets = presets,
                                                     .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::internvl_chat
