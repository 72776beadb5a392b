// SPDX-License-Identifier: Apache-2.0
// PaddleOCR-VL: ERNIE 4.5 that reads pages. Its tower is SigLIP's, which also turns by rows and columns.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::paddleocr_vl {

namespace {
DecoderSpec read(const Config& c) {
  const Config text = text_part(c);
  DecoderSpec spec = read_decoder(
      text, {.kv_heads = 2, .positions = 131072, .head_dim = 128, .tied = true, .eps = 1e-5, .rope = {.theta = 5e5}});
  spec.attention.qkv_bias = spec.attention.out_bias = text.flag("use_bias", false);
  use_kind(spec, FeedForwardKind::Gated, text.flag("use_bias", false));
  if (spec.ropes[0].sections.empty()) spec.ropes[0].sections = {16, 24, 24};

  SeeingSpec seeing{.vision = read_paddle_tower(part_of(c, "vision_config"), spec.shape.hidden)};
  VisionSpec& tower = seeing.vision;
  tower.name = "model.visual.vision_model", tower.merger = "model.projector";
  // Files of the hub name everything as ERNIE does.
  seeing.forms = {
      {.renames = {{"model.visual.", "visual."}, {"model.projector.", "mlp_AR."}, {"model.language_model.", "model."}}},
      {}};
  seeing.aligner = {tower.merger}, seeing.tower = {"model.visual"};
  // Its classes know a token for videos, and see none.
  Json said = c.json();
  said.erase("video_token_id");
  use_sight(Config(said), spec, std::move(seeing));
  return spec;
}

Json vision_says() {
  Json says = {{"model_type", "paddleocr_vl"}};
  says.update(paddle_tower_says());
  return says;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"paddleocr-vl-0.9b", 1024, 18, 16, 2, 128, 3072, 103424, 131072, 5e5, false},
};

const RegisterFamily paddleocr_vl("paddleocr_vl",
                                  {.title = "PaddleOCR-VL",
                                   .architecture = "PaddleOCRVLForConditionalGeneration",
                                   .read = read,
                                   .says = {{"rms_norm_eps", 1e-5},
                                            {"use_bias", false},
                                            {"rope_scaling", {{"type", "default"}, {"mrope_section", {16, 24, 24}}}},
                                            {"image_token_id", 100295},
                                            {"video_token_id", 100296},
                                            {"vision_start_token_id", 101305},
                                            {"vision_end_token_id", 101306},
                                            {"vision_config", vision_says()}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::paddleocr_vl
