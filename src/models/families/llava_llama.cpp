// SPDX-License-Identifier: Apache-2.0
// Llava 1.6 in its authors' own files, over Llama or Yi (llava-v1.6-34b, llama3-llava-next-8b). transformers' layout of
// the same is llava_next.
#include "models/families/llava_llama.h"

#include "base/error.h"
#include "media/mosaic.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::llava_llama {

namespace {
// Files name their tower and do not describe it; those that do are believed.
Json tower_of_llava(const Config& c) {
  if (c.find("vision_config")) return part_of(c, "vision_config").json();
  const std::string name = c.text("mm_vision_tower", "");
  require(
      name.ends_with("clip-vit-large-patch14-336"), Fault::Model, "config.json: mm_vision_tower '", name,
      "' is not known here, only openai/clip-vit-large-patch14-336; a vision_config as transformers writes it for a "
      "clip_vision_model describes another");
  return clip_large_says();
}

void expect_of_llava(const Config& c, const char* key, const char* wanted, const std::string& besides = "") {
  const std::string said = c.text(key, wanted);
  require(said == wanted, Fault::Model, "config.json: ", key, " '", said, "' is not supported, only '", wanted, "'",
          besides);
}
}  // namespace

}  // namespace apus::families::llava_llama

namespace apus {

DecoderSpec read_own_llava(const Config& c, const char* text_type) {
  using families::llava_llama::expect_of_llava;
  expect_of_llava(c, "image_aspect_ratio", "anyres",
                  ": in their own files only Llava 1.6 and later are read, which hold their tower; of Llava 1.5 take "
                  "transformers' layout, as llava-hf/llava-1.5-7b-hf");
  expect_of_llava(c, "mm_patch_merge_type", "spatial_unpad");
  expect_of_llava(c, "mm_projector_type", "mlp2x_gelu");
  expect_of_llava(c, "mm_vision_select_feature", "patch");
  require(!c.flag("mm_use_im_start_end", false), Fault::Model,
          "config.json: mm_use_im_start_end true is not supported, which no Llava 1.6 has");
  Json text = c.json();
  text["model_type"] = text_type;
  DecoderSpec spec = read_language(Config(text), "");
  const Json described = families::llava_llama::tower_of_llava(c);
  const Json* chosen = c.find("mm_vision_select_layer");
  const Json layer = {{"vision_feature_layer", chosen ? *chosen : Json(-2)}};
  SeeingSpec seeing{.vision = read_tower(Config(described))};
  VisionSpec& tower = seeing.vision;
  require(tower.tile > 0 && tower.names.first, Fault::Model,
          "config.json: vision_config: only a clip_vision_model is supported here");
  use_feature_layer(Config(layer), tower, -2);
  use_two_layers(Config(layer), tower, spec.shape.hidden);
  tower.name = "model.vision_tower.vision_tower.vision_model", tower.merger = "model.mm_projector";
  tower.names.merger_in = "0", tower.names.merger_out = "2";
  tower.newline = "model.image_newline";
  seeing.mosaic = std::make_shared<const MosaicForm>(read_own_mosaic(c.json(), tower.tile, tower.table_side));
  seeing.image_token = kOwnLlavaImage, seeing.forms = {{}};
  use_sight_in_line(spec, std::move(seeing));
  return spec;
}

Json own_llava_says() {
  return {{"image_aspect_ratio", "anyres"},
          {"image_grid_pinpoints", {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}},
          {"mm_hidden_size", 1024},
          {"mm_patch_merge_type", "spatial_unpad"},
          {"mm_projector_type", "mlp2x_gelu"},
          {"mm_vision_select_feature", "patch"},
          {"mm_vision_select_layer", -2},
          {"mm_vision_tower", "openai/clip-vit-large-patch14-336"},
          {"vision_config", clip_large_says()}};
}

}  // namespace apus

namespace apus::families::llava_llama {

namespace {
DecoderSpec read_over_llama(const Config& c) { return read_own_llava(c, "llama"); }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> over_llama = {
    {"llama3-llava-next-8b", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 5e5, false, {}, {{"rms_norm_eps", 1e-5}}},
    {"llava-v1.6-34b", 7168, 60, 56, 8, 128, 20480, 64000, 4096, 5e6, false, {}, {{"rms_norm_eps", 1e-5}}},
};
const RegisterFamily llava_llama("llava_llama", {.title = "Llava 1.6, its authors' layout",
                                                 .architecture = "LlavaLlamaForCausalLM",
                                                 .read = read_over_llama,
                                                 .says = own_llava_says(),
                                                 .presets = over_llama});
}  // namespace

}  // namespace apus::families::llava_llama
