// SPDX-License-Identifier: Apache-2.0
// LightOnOCR: Pixtral's tower, of whose patches squares become one row, as in Mistral 3, and Qwen3 that reads pages.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::lighton_ocr {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "qwen3");
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  require(tower.tile == 0, Fault::Model, "config.json: vision_config: only the model_type 'pixtral' is supported here");
  tower.name = "model.vision_encoder", tower.merger = "model.vision_projection";
  use_merged_squares(c, tower, text);
  text.tied = c.flag("tie_word_embeddings", true);
  seeing.forms = {{}};
  return with_tower(c, std::move(text), std::move(seeing));
}

Json qwen_text_says() {
  return {{"text_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}, {"rms_norm_eps", 1e-6}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"lighton-ocr-1b", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e6, true, {}, qwen_text_says()},
};

const RegisterFamily lighton_ocr(
    "lighton_ocr", {.title = "LightOnOCR",
                    .architecture = "LightOnOcrForConditionalGeneration",
                    .read = read,
                    .says = {{"image_token_id", 151655}, {"spatial_merge_size", 2}, {"vision_config", pixtral_says()}},
                    .presets = presets});
}  // namespace

}  // namespace apus::families::lighton_ocr
