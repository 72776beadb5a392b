// SPDX-License-Identifier: Apache-2.0
// DeepSeek-VL (1.3B): SigLIP's tower over one square, two linear layers, Llama.
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::deepseek_vl {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "llama");
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  use_last_norm(tower);
  use_two_layers(c, tower, text.shape.hidden);
  tower.name = "model.vision_model", tower.merger = "model.aligner";
  tower.names.merger_in = "linear1", tower.names.merger_out = "linear2";
  // In files before transformers 5 the tower is a model in a model.
  seeing.forms = {{.renames = {{"model.vision_model.", "model.vision_model.vision_model."}}}, {}};
  return with_tower(c, std::move(text), std::move(seeing));
}

Json llama_says() {
  return {{"text_config", {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"rms_norm_eps", 1e-6}}}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-vl-1.3b", 2048, 24, 16, 16, 0, 5504, 102400, 16384, 1e4, false, {}, llama_says()},
};

const RegisterFamily deepseek_vl("deepseek_vl", {.title = "DeepSeek-VL 1.3B",
                                                 .architecture = "DeepseekVLForConditionalGeneration",
                                                 .read = read,
                                                 .says = {{"image_token_id", 100015},
                                                          {"vision_config",
                                                           {{"model_type", "siglip_vision_model"},
                                                            {"hidden_size", 1024},
                                                            {"num_hidden_layers", 24},
                                                            {"num_attention_heads", 16},
                                                            {"intermediate_size", 4096},
                                                            {"image_size", 384},
                                                            {"patch_size", 16},
                                                            {"hidden_act", "gelu"},
                                                            {"vision_use_head", false}}}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::deepseek_vl
