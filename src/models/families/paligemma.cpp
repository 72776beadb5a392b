// SPDX-License-Identifier: Apache-2.0
// PaliGemma: SigLIP's tower, whose patches a matrix brings into Gemma or Gemma 2. A picture and the question behind it
// see each other whole; answers see what is before them.
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::paligemma {

namespace {
// Newer files say of the text part what is true of all of it: that questions see what is behind.
Json without_sight(Json config) {
  if (config.contains("text_config") && config["text_config"].is_object())
    config["text_config"].erase("use_bidirectional_attention");
  return config;
}

DecoderSpec read(const Config& said) {
  const Json plain = without_sight(said.json());
  const Config c(plain);
  DecoderSpec text = read_text_part(c, "gemma");
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  use_last_norm(tower);
  VisionNames& n = tower.names;
  n.merger_norm = n.merger_out = nullptr, n.merger_in = "linear";
  seeing.sees_ahead = seeing.sees_question = true;
  return with_tower(c, std::move(text), std::move(seeing));
}

Json gemma_part_says() {
  return {{"text_config",
           {{"model_type", "gemma"},
            {"architectures", {"GemmaForCausalLM"}},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"vocab_size", 257216}}}};
}
Json gemma2_part_says(int64_t scalar) {
  return {{"text_config",
           {{"model_type", "gemma2"},
            {"architectures", {"Gemma2ForCausalLM"}},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"query_pre_attn_scalar", scalar},
            {"sliding_window", 4096},
            {"vocab_size", 257216}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"paligemma-3b", 2048, 18, 8, 1, 256, 16384, 257216, 8192, 1e4, true, {}, gemma_part_says()},
    {"paligemma2-3b", 2304, 26, 8, 4, 256, 9216, 257216, 8192, 1e4, true, {}, gemma2_part_says(256)},
    {"paligemma2-10b", 3584, 42, 16, 8, 256, 14336, 257216, 8192, 1e4, true, {}, gemma2_part_says(256)},
};

const RegisterFamily paligemma("paligemma", {.title = "PaliGemma 1 and 2",
                                             .architecture = "PaliGemmaForConditionalGeneration",
                                             .read = read,
                                             .says = {{"image_token_index", 257152},
                                                      {"vision_config",
                                                       {{"model_type", "siglip_vision_model"},
                                                        {"hidden_size", 1152},
                                                        {"num_hidden_layers", 27},
                                                        {"num_attention_heads", 16},
                                                        {"intermediate_size", 4304},
                                                        {"image_size", 224},
                                                        {"patch_size", 14},
                                                        {"vision_use_head", false}}}},
                                             .presets = presets});
}  // namespace

}  // namespace apus::families::paligemma
