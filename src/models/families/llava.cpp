// SPDX-License-Identifier: Apache-2.0
// Llava 1.5: a tower (CLIP's, SigLIP's or Pixtral's), two linear layers, any text model. Files of Llava 1.6's authors
// are called the same, and read as llava_llama.
#include "models/families/llava_llama.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::llava {

namespace {
DecoderSpec read(const Config& c) {
  if (c.find("mm_vision_tower")) return read_own_llava(c, "llama");
  DecoderSpec text = read_text_part(c, "llama");
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  use_feature_layer(c, seeing.vision, -2);
  use_two_layers(c, seeing.vision, text.shape.hidden);
  return with_tower(c, std::move(text), std::move(seeing));
}

Json llava_text_says() {
  return {{"text_config", {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"rms_norm_eps", 1e-5}}}};
}

// With Pixtral's tower.
GgufTower gguf_tower() {
  GgufTower tower = pixtral_gguf_tower();
  tower.says["vision_feature_layer"] = -1, tower.says["vision_feature_select_strategy"] = "full";
  return tower;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llava-1.5-7b", 4096, 32, 32, 32, 0, 11008, 32064, 4096, 1e4, false, {}, llava_text_says()},
    {"llava-1.5-13b", 5120, 40, 40, 40, 0, 13824, 32064, 4096, 1e4, false, {}, llava_text_says()},
};

const RegisterFamily llava("llava", {.title = "Llava 1.5, Pixtral",
                                     .architecture = "LlavaForConditionalGeneration",
                                     .read = read,
                                     .says = {{"image_token_index", 32000},
                                              {"image_seq_length", 576},
                                              {"projector_hidden_act", "gelu"},
                                              {"vision_feature_layer", -2},
                                              {"vision_feature_select_strategy", "default"},
                                              {"vision_config", clip_large_says()}},
                                     .presets = presets,
                                     .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::llava
