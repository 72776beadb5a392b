// SPDX-License-Identifier: Apache-2.0
// LLaVA-OneVision 1.5: Qwen3 behind RICE-ViT, which sees pictures in their own size with a row of its own before each,
// whose heads turn by learnt angles. Media count up as text does.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::llavaonevision1_5 {

namespace {
VisionSpec read_rice_tower(const Config& v) {
  VisionSpec s = read_vision(v, "hidden_size");
  s.ffn = v.integer("intermediate_size", 4096), s.out = v.integer("text_hidden_size", 2560);
  s.norm = {NormKind::MeanAndBias, v.number("layer_norm_eps", 1e-5)};
  require(s.ffn > 0 && v.integer("temporal_patch_size", 1) == 1 && v.text("hidden_act", "gelu") == "gelu", Fault::Model,
          "config.json: vision_config: intermediate_size must be above 0, temporal_patch_size 1 and hidden_act gelu");
  s.act = TowerActivation::Gelu;
  s.time_patch = 1, s.patch_has_time = false;
  s.names.first = "class_embedding", s.names.first_angles = "class_pos_emb", s.first_in_table = true;
  s.names.norm_in = "pre_layernorm";
  return s;
}

DecoderSpec read(const Config& c) {
  Json text = part_of(c, "text_config").json();
  text["model_type"] = "qwen3";
  DecoderSpec spec = read_language(Config(text), "");
  spec.backbone = "model.language_model", spec.tied = c.flag("tie_word_embeddings", spec.tied);
  SeeingSpec seeing{.vision = read_rice_tower(part_of(c, "vision_config")), .forms = {form_before_nesting(), {}}};
  seeing.image_token = c.integer("image_token_id", 151655), seeing.video_token = c.integer("video_token_id", 151656);
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

Json says(int64_t out) {
  return {{"text_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}},
          {"vision_config",
           {{"model_type", "rice_vit"},
            {"depth", 24},
            {"embed_dim", 1024},
            {"hidden_size", 1024},
            {"hidden_act", "gelu"},
            {"intermediate_size", 4096},
            {"num_heads", 16},
            {"in_channels", 3},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 1},
            {"layer_norm_eps", 1e-5},
            {"text_hidden_size", out}}}};
}

// name                    hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llava-onevision-1.5-4b", 2560, 36, 32, 8, 128, 9728, 151936, 262144, 5e6, false, {}, says(2560)},
    {"llava-onevision-1.5-8b", 4096, 36, 32, 8, 128, 12288, 151936, 262144, 5e6, false, {}, says(4096)},
};

const RegisterFamily llava_onevision1_5("llavaonevision1_5",
                                        {.title = "LLaVA-OneVision 1.5",
                                         .architecture = "LLaVAOneVision1_5_ForConditionalGeneration",
                                         .read = read,
                                         .says = {{"image_token_id", 151655},
                                                  {"video_token_id", 151656},
                                                  {"vision_start_token_id", 151652},
                                                  {"vision_end_token_id", 151653}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::llavaonevision1_5
