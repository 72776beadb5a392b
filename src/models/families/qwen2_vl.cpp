// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL: Qwen2 that sees. Its tower has 2-D rotary positions alone.
#include <algorithm>

#include "models/spec/family.h"
#include "models/spec/qwen_gguf.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"

namespace apus::families::qwen2_vl {

namespace {
DecoderSpec read(const Config& c) {
  const Config text = text_part(c), vision = part_of(c, "vision_config");
  DecoderSpec spec = read_decoder(text, {.kv_heads = 8, .ffn = 29568, .eps = 1e-5});
  spec.attention.qkv_bias = true;
  spec.window = read_windows(text, spec.shape.layers, if_asked(text, Slides::Above));
  SeeingSpec seeing{.vision = read_vision(vision, "embed_dim")};
  VisionSpec& tower = seeing.vision;
  tower.ffn = static_cast<int64_t>(static_cast<double>(tower.width) * vision.number("mlp_ratio", 4));
  tower.out = vision.integer("hidden_size");  // of what it gives
  seeing.forms = {form_before_nesting(), {}};
  use_sight(c, spec, std::move(seeing));
  return spec;
}

Json sight(int64_t out) {
  return {{"vision_config",
           {{"depth", 32},
            {"embed_dim", 1280},
            {"mlp_ratio", 4},
            {"num_heads", 16},
            {"in_chans", 3},
            {"hidden_size", out},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2}}}};
}

// The file gives the length of what the tower makes for the feed-forward's.
void read_file_of_tower(const GgufSays& clip, Json& config) {
  Json& vision = config["vision_config"];
  const int64_t width = clip.needed("vision.embedding_length");
  const GgufTensor* up = clip.tensor("v.blk.0.ffn_up.weight");
  vision["embed_dim"] = width;
  vision["hidden_size"] = clip.needed("vision.projection_dim");
  if (up && !up->shape.empty() && width > 0)
    vision["mlp_ratio"] = std::max(up->shape.front(), up->shape.back()) / width;
}
void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  const Json& vision = config["vision_config"];
  out.whole("vision.embedding_length", vision.value("embed_dim", int64_t{0}));
  out.whole("vision.feed_forward_length", vision.value("hidden_size", int64_t{0}));
  out.whole("vision.image_size", 560);
}

GgufTower gguf_tower() {
  GgufTower tower = qwen_tower("qwen2vl_merger", "qwen2vl", "qwen2", {"mlp.fc1", "mlp.fc2", "ln_q", "mlp.0", "mlp.2"});
  tower.read = read_file_of_tower, tower.write = write_file_of_tower;
  return tower;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen2-vl-2b", 1536, 28, 12, 2, 0, 8960, 151936, 32768, 1e6, true, {}, sight(1536)},
    {"qwen2-vl-7b", 3584, 28, 28, 4, 0, 18944, 152064, 32768, 1e6, false, {}, sight(3584)},
    {"qwen2-vl-72b", 8192, 80, 64, 8, 0, 29568, 152064, 32768, 1e6, false, {}, sight(8192)},
};

const RegisterFamily qwen2_vl("qwen2_vl",
                              {.title = "Qwen2-VL",
                               .architecture = "Qwen2VLForConditionalGeneration",
                               .read = read,
                               .says = {{"use_sliding_window", false},
                                        {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
                                        {"image_token_id", 151655},
                                        {"video_token_id", 151656},
                                        {"vision_start_token_id", 151652},
                                        {"vision_end_token_id", 151653}},
                               .presets = presets,
                               .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::qwen2_vl
