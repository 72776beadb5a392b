// SPDX-License-Identifier: Apache-2.0
// Qianfan-OCR: InternVL's tower under OpenGVLab's names, in a config.json of transformers' words, and Qwen3.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_internvl.h"
#include "models/spec/read_seeing.h"

namespace apus::families::qianfan_ocr {

namespace {
DecoderSpec read(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  VisionSpec tower = read_intern_tower(vision, {1024, 24, 16, 4096, 448, "layer_norm"});
  use_first_names(tower, vision.flag("use_qk_norm", false));
  tower.qkv_bias = vision.flag("attention_bias", true);
  const Json* layer = c.find("vision_feature_layer");
  require((!layer || *layer == -1) && c.text("vision_feature_select_strategy", "default") == "default", Fault::Model,
          "config.json: vision_feature_layer other than -1 and vision_feature_select_strategy other than 'default' are "
          "not supported");
  DecoderSpec text = read_language(part_of(c, "text_config"), "language_model.");
  text.tied = c.flag("tie_word_embeddings", false);
  return with_intern_tower(c, std::move(text), std::move(tower), c.integer("image_token_id", 151667),
                           {"language_model"}, {});
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qianfan-ocr-4b",
     2560,
     36,
     32,
     8,
     128,
     9728,
     153678,
     32768,
     5e6,
     false,
     {},
     {{"text_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}}}},
};

const RegisterFamily qianfan_ocr("qianfan_ocr", {.title = "Qianfan-OCR",
                                                 .architecture = "QianfanOCRForConditionalGeneration",
                                                 .read = read,
                                                 .says = intern_says(),
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::qianfan_ocr
