// SPDX-License-Identifier: Apache-2.0
// Llava OneVision: Llava 1.6 with more squares, of which there may be too many: their lines are then made fewer.
// Of a video each frame is one square, with a quarter of the rows.
#include "base/error.h"
#include "models/families/llava_next.h"
#include "models/spec/family.h"
#include "models/spec/seeing_spec.h"

namespace apus::families::llava_onevision {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_mosaics(c, "qwen2", -1);
  SeeingSpec seeing = *spec.seeing;
  seeing.video_token = c.integer(c.find("video_token_id") ? "video_token_id" : "video_token_index", -1);
  require(seeing.video_token < spec.shape.vocab, Fault::Model, "config.json: video_token_index ", seeing.video_token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json onevision_text() {
  return {{"text_config",
           {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}, {"use_sliding_window", false}}}};
}

const std::vector<Preset> presets = {
    {"llava-onevision-0.5b", 896, 24, 14, 2, 0, 4864, 152000, 32768, 1e6, true, {}, onevision_text()},
    {"llava-onevision-7b", 3584, 28, 28, 4, 0, 18944, 152128, 32768, 1e6, false, {}, onevision_text()},
};

Json grids_up_to(int64_t side, int64_t most) {
  Json all = Json::array();
  for (int64_t rows = 1; rows <= most; ++rows)
    for (int64_t columns = 1; columns <= most; ++columns) all.push_back({rows * side, columns * side});
  return all;
}

const RegisterFamily onevision("llava_onevision", {.title = "Llava OneVision",
                                                   .architecture = "LlavaOnevisionForConditionalGeneration",
                                                   .read = read,
                                                   .says = {{"image_token_index", 151646},
                                                            {"video_token_index", 151647},
                                                            {"image_grid_pinpoints", grids_up_to(384, 6)},
                                                            {"projector_hidden_act", "gelu"},
                                                            {"vision_aspect_ratio", "anyres_max_9"},
                                                            {"vision_feature_layer", -1},
                                                            {"vision_feature_select_strategy", "full"},
                                                            {"vision_config",
                                                             {{"model_type", "siglip_vision_model"},
                                                              {"hidden_size", 1152},
                                                              {"num_hidden_layers", 26},
                                                              {"num_attention_heads", 16},
                                                              {"intermediate_size", 4304},
                                                              {"image_size", 384},
                                                              {"patch_size", 14},
                                                              {"vision_use_head", false}}}},
                                                   .presets = presets});
}  // namespace

}  // namespace apus::families::llava_onevision
