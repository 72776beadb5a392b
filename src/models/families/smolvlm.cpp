// SPDX-License-Identifier: Apache-2.0
// SmolVLM: Idefics 3 in small, which sees videos too.
#include "models/families/idefics3.h"
#include "models/spec/family.h"
#include "models/spec/seeing_spec.h"

namespace apus::families::smolvlm {

namespace {
// Frames of videos are pictures of one tile each.
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_idefics3(c);
  SeeingSpec seeing = *spec.seeing;
  seeing.video_token = seeing.image_token;
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

GgufTower gguf_tower() {
  GgufTower tower = idefics3_gguf_tower();
  tower.says["vision_config"]["model_type"] = "smolvlm_vision";
  return tower;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"smolvlm2-2.2b",
     2048,
     24,
     32,
     32,
     64,
     8192,
     49280,
     8192,
     130000,
     false,
     {},
     {{"text_config", {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"rms_norm_eps", 1e-5}}}}},
};

const RegisterFamily smolvlm("smolvlm", {.title = "SmolVLM, SmolVLM 2",
                                         .architecture = "SmolVLMForConditionalGeneration",
                                         .read = read,
                                         .says = {{"image_token_id", 49190},
                                                  {"scale_factor", 3},
                                                  {"vision_config",
                                                   {{"hidden_size", 1152},
                                                    {"num_hidden_layers", 27},
                                                    {"num_attention_heads", 16},
                                                    {"intermediate_size", 4304},
                                                    {"image_size", 384},
                                                    {"patch_size", 14}}}},
                                         .presets = presets,
                                         .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::smolvlm
