// SPDX-License-Identifier: Apache-2.0
// PaddleOCR-VL: ERNIE 4.5 that reads pages. Its tower is SigLIP's, which also turns by rows and columns.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

namespace {
DecoderSpec read(const Config& c) {
  const Config text = text_part(c), vision = part_of(c, "vision_config");
  DecoderSpec spec = read_decoder(
      text, {.kv_heads = 2, .positions = 131072, .head_dim = 128, .tied = true, .eps = 1e-5, .rope = {.theta = 5e5}});
  spec.attention.qkv_bias = spec.attention.out_bias = text.flag("use_bias", false);
  use_kind(spec, FeedForwardKind::Gated, text.flag("use_bias", false));
  if (spec.ropes[0].sections.empty()) spec.ropes[0].sections = {16, 24, 24};

  SeeingSpec seeing{.vision = read_paddle_tower(vision)};
  VisionSpec& tower = seeing.vision;
  tower.merge = vision.integer("spatial_merge_size", 2);
  require(tower.merge > 0 && tower.head_size() % 4 == 0, Fault::Model,
          "config.json: vision_config: spatial_merge_size must be above 0, and heads a multiple of 4 wide");
  tower.name = "model.visual.vision_model", tower.merger = "model.projector";
  tower.out = spec.shape.hidden;
  tower.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  tower.names.merger_norm = "pre_norm", tower.names.merger_in = "linear_1", tower.names.merger_out = "linear_2";
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
                                            {"vision_config",
                                             {{"model_type", "paddleocr_vl"},
                                              {"hidden_size", 1152},
                                              {"num_hidden_layers", 27},
                                              {"num_attention_heads", 16},
                                              {"intermediate_size", 4304},
                                              {"num_channels", 3},
                                              {"image_size", 384},
                                              {"patch_size", 14},
                                              {"spatial_merge_size", 2},
                                              {"layer_norm_eps", 1e-6},
                                              {"hidden_act", "gelu_pytorch_tanh"}}}},
                                   .presets = presets});
}  // namespace

}  // namespace apus
