// SPDX-License-Identifier: Apache-2.0
// Keye-VL: Qwen3 behind SigLIP's tower of pictures in their own size, which also turns by rows and columns.
#include "models/families/keye.h"

#include "base/error.h"
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
  const Config vision = part_of(c, "vision_config");
  SeeingSpec seeing{.vision = read_paddle_tower(vision)};
  VisionSpec& tower = seeing.vision;
  tower.merge = vision.integer("spatial_merge_size", 2);
  require(tower.merge > 0 && tower.head_size() % 4 == 0, Fault::Model,
          "config.json: vision_config: spatial_merge_size must be above 0, and heads a multiple of 4 wide");
  tower.name = "model.visual.vision_model", tower.merger = "model.mlp_AR";
  tower.out = spec.shape.hidden;
  tower.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5}, tower.merger_norm_first = !norm_of_cells;
  tower.names.merger_norm = "pre_norm", tower.names.merger_in = "linear_1", tower.names.merger_out = "linear_2";
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
          {"vision_config",
           {{"hidden_size", 1152},
            {"num_hidden_layers", 27},
            {"num_attention_heads", 16},
            {"intermediate_size", 4304},
            {"num_channels", 3},
            {"image_size", 384},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"layer_norm_eps", 1e-6},
            {"hidden_act", "gelu_pytorch_tanh"}}}};
}

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

}  // namespace apus
