// SPDX-License-Identifier: Apache-2.0
// Mistral 3 (Mistral Small 3.1 on, Ministral 3): Pixtral's tower, of whose patches squares become one row, and Mistral.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::mistral3 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "mistral");
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  require(tower.tile == 0, Fault::Model, "config.json: vision_config: only the model_type 'pixtral' is supported here");
  const Json* layer = c.find("vision_feature_layer");
  require(!layer || *layer == -1, Fault::Model, "config.json: only vision_feature_layer -1 is supported");
  use_merged_squares(c, tower, text);
  text.tied = c.flag("tie_word_embeddings", part_of(c, "text_config").flag("tie_word_embeddings", true));
  return with_tower(c, std::move(text), std::move(seeing));
}

Json mistral_text_says() {
  return {
      {"text_config", {{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"rms_norm_eps", 1e-5}}}};
}

// How it stands in GGUF files: those of its time call the text mistral3, too.
void read_file_of_tower(const GgufSays& clip, Json& config) {
  pixtral_gguf_tower().read(clip, config);
  config["spatial_merge_size"] = clip.integer("vision.spatial_merge_size").value_or(1);
  config["multimodal_projector_bias"] = false;
}
void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  pixtral_gguf_tower().write(config, out);
  out.whole("vision.spatial_merge_size", config.value("spatial_merge_size", int64_t{2}));
}
GgufTower gguf_tower() {
  GgufTower tower = pixtral_gguf_tower();
  tower.architecture = "mistral3";
  tower.form.names.push_back({"model.multi_modal_projector.norm", "mm.input_norm"});
  tower.form.names.push_back({"model.multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"});
  tower.says["vision_feature_layer"] = -1;
  tower.read = read_file_of_tower, tower.write = write_file_of_tower;
  return tower;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mistral-small-3.1-24b", 5120, 40, 32, 8, 128, 32768, 131072, 131072, 1e9, false, {}, mistral_text_says()},
};

const RegisterFamily mistral3("mistral3", {.title = "Mistral Small 3.1 and later",
                                           .architecture = "Mistral3ForConditionalGeneration",
                                           .read = read,
                                           .says = {{"image_token_index", 10},
                                                    {"multimodal_projector_bias", false},
                                                    {"projector_hidden_act", "gelu"},
                                                    {"spatial_merge_size", 2},
                                                    {"vision_feature_layer", -1},
                                                    {"vision_config", pixtral_says()}},
                                           .presets = presets,
                                           .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::mistral3
