// SPDX-License-Identifier: Apache-2.0
// Llava 1.6: a picture as one square of all of it and a grid of squares, whose lines end in a row of
// their own.
#include "models/families/llava_next.h"

#include "base/error.h"
#include "media/mosaic.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

DecoderSpec read_mosaics(const Config& c, const char* text_type, int64_t feature_layer) {
  DecoderSpec text = read_text_part(c, text_type);
  SeeingSpec seeing{.vision = read_tower(part_of(c, "vision_config"))};
  VisionSpec& tower = seeing.vision;
  require(tower.tile > 0, Fault::Model, "config.json: vision_config: this family looks at squares of one size");
  use_feature_layer(c, tower, feature_layer);
  use_two_layers(c, tower, text.shape.hidden);
  tower.newline = "model.image_newline";
  seeing.mosaic = std::make_shared<const MosaicForm>(read_mosaic(c.json(), tower.tile, tower.table_side));
  return with_tower(c, std::move(text), std::move(seeing));
}

Json next_text_says(const char* type, const char* architecture) {
  return {{"text_config", {{"model_type", type}, {"architectures", {architecture}}, {"rms_norm_eps", 1e-5}}}};
}

Json next_says(int64_t image_token) {
  return {{"image_token_index", image_token},
          {"image_grid_pinpoints", {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}},
          {"projector_hidden_act", "gelu"},
          {"vision_feature_layer", -2},
          {"vision_feature_select_strategy", "default"},
          {"vision_config", clip_large_says()}};
}

}  // namespace apus

namespace apus::families::llava_next {

namespace {
DecoderSpec read_next(const Config& c) { return read_mosaics(c, "llama", -2); }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> next_presets = {
    {"llava-v1.6-mistral-7b",
     4096,
     32,
     32,
     8,
     128,
     14336,
     32064,
     32768,
     1e6,
     false,
     {},
     next_text_says("mistral", "MistralForCausalLM")},
    {"llava-v1.6-vicuna-7b",
     4096,
     32,
     32,
     32,
     128,
     11008,
     32064,
     4096,
     1e4,
     false,
     {},
     next_text_says("llama", "LlamaForCausalLM")},
};
const RegisterFamily next("llava_next", {.title = "Llava 1.6",
                                         .architecture = "LlavaNextForConditionalGeneration",
                                         .read = read_next,
                                         .says = next_says(32000),
                                         .presets = next_presets});
}  // namespace

}  // namespace apus::families::llava_next
