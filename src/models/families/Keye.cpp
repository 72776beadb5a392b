// SPDX-License-Identifier: Apache-2.0
// Keye-VL: Qwen3 behind SigLIP's tower of pictures in their own size, which also turns by rows and columns.
#include "models/families/keye.h"

#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

DecoderSpec read_keye(const Config& c, bool norm_of_cells) {
  Json said = c.json();
  // Videos are not read: its own form of them takes frames of two sizes.
  for (const char* own : {"vision_config", "auto_map", "video_token_id"}) said.erase(own);
  Json text = text_part(Config(said)).json();
  text["model_type"] = "qwen3";
  DecoderSpec spec = read_language(Config(text), "");
  if (spec.ropes[0].sections.empty()) spec.ropes[0].sections = {16, 24, 24};
  SeeingSpec seeing{.vision = read_paddle_tower(part_of(c, "vision_config"), spec.shape.hidden)};
  VisionSpec& tower = seeing.vision;
  tower.name = "model.visual.vision_model", tower.merger = "model.mlp_AR";
  tower.merger_norm_first = !norm_of_cells;
  seeing.forms = {
      {.renames = {{"model.visual.", "visual."}, {"model.mlp_AR.", "mlp_AR."}, {"model.language_model.", "model."}}}};
  seeing.aligner = {tower.merger}, seeing.tower = {"model.visual"};
  said["image_token_id"] = c.integer("image_token_id", 151655);
  use_sight(Config(said), spec, std::move(seeing));
  return spec;
}

Json keye_says() {
  return {{"image_token_id", 151655},
          {"video_token_id", 151656},
          {"vision_start_token_id", 151652},
          {"vision_end_token_id", 151653},
          {"rope_scaling", {{"type", "default"}, {"rope_type", "default"}, {"mrope_section", {16, 24, 24}}}},
          {"vision_config", paddle_tower_says()}};
}

}  // namespace apus

namespace apus::families::Keye {

namespace {
DecoderSpec read(const Config& c) { return read_keye(c, false); }

// name           hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"keye-vl-8b", 4096, 36, 32, 8, 128, 12288, 151936, 40960, 1e6, false},
};

const RegisterFamily keye("Keye", {.title = "Keye-VL",
                                   .architecture = "KeyeForConditionalGeneration",
                                   .read = read,
                                   .says = keye_says(),
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::Keye
