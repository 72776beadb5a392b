// SPDX-License-Identifier: Apache-2.0
// EXAONE 4.5: EXAONE 4 behind Qwen2.5-VL's tower, whose keys and values have fewer heads. Media count up as text does.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::exaone4_5 {

namespace {
DecoderSpec read(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  Json text = part_of(c, "text_config").json();
  text["model_type"] = "exaone4";  // the first files say exaone4_5_text
  DecoderSpec spec = read_language(Config(text), "");
  spec.backbone = "model.language_model", spec.tied = c.flag("tie_word_embeddings", false);
  SeeingSpec seeing{.vision = read_vision(vision, "hidden_size"), .forms = {{}}};
  VisionSpec& tower = seeing.vision;
  use_windowed_tower(vision, tower);
  tower.kv_heads = vision.integer("num_key_value_heads", 8);
  require(tower.kv_heads > 0 && tower.heads % tower.kv_heads == 0, Fault::Model,
          "config.json: vision_config: ", tower.heads, " heads cannot share ", tower.kv_heads, " of keys and values");
  seeing.image_token = c.integer("image_token_id", 67), seeing.video_token = c.integer("video_token_id", 68);
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"exaone4.5-33b",
     5120,
     64,
     40,
     8,
     128,
     27392,
     153600,
     262144,
     1e6,
     false,
     {},
     {{"text_config",
       {{"model_type", "exaone4"}, {"architectures", {"Exaone4ForCausalLM"}}, {"sliding_window", 4096}}}}},
};

const RegisterFamily exaone4_5("exaone4_5", {.title = "EXAONE 4.5",
                                             .architecture = "Exaone4_5_ForConditionalGeneration",
                                             .read = read,
                                             .says = {{"image_token_id", 67},
                                                      {"video_token_id", 68},
                                                      {"vision_config",
                                                       {{"model_type", "exaone4_5_vision"},
                                                        {"depth", 28},
                                                        {"hidden_act", "silu"},
                                                        {"hidden_size", 2048},
                                                        {"intermediate_size", 5120},
                                                        {"num_heads", 32},
                                                        {"num_key_value_heads", 8},
                                                        {"in_chans", 3},
                                                        {"out_hidden_size", 5120},
                                                        {"patch_size", 14},
                                                        {"spatial_merge_size", 2},
                                                        {"temporal_patch_size", 2},
                                                        {"window_size", 112},
                                                        {"fullatt_block_indexes", {6, 13, 20, 27}}}}},
                                             .presets = presets});
}  // namespace

}  // namespace apus::families::exaone4_5
