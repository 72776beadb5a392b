// SPDX-License-Identifier: Apache-2.0
// Qwen2.5-VL: Qwen2 that sees. Most layers of its tower look at windows, and videos are placed by seconds.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/qwen_gguf.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"

namespace apus::families::qwen2_5_vl {

namespace {
DecoderSpec read(const Config& c) {
  const Config text = text_part(c), vision = part_of(c, "vision_config");
  DecoderSpec spec = read_decoder(text, {.kv_heads = 8, .ffn = 29568, .eps = 1e-5});
  spec.attention.qkv_bias = true;
  spec.window = read_windows(text, spec.shape.layers, if_asked(text, Slides::Above));
  SeeingSpec seeing{.vision = read_vision(vision, "hidden_size"), .time = TimeRule::Seconds};
  use_windowed_tower(vision, seeing.vision);
  seeing.positions_per_second = vision.number("tokens_per_second", 4);
  seeing.forms = {form_before_nesting(), {}};
  use_sight(c, spec, std::move(seeing));
  return spec;
}

Json sight(int64_t out, int64_t ffn) {
  return {{"vision_config",
           {{"depth", 32},
            {"hidden_act", "silu"},
            {"hidden_size", 1280},
            {"intermediate_size", ffn},
            {"num_heads", 16},
            {"in_chans", 3},
            {"out_hidden_size", out},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2},
            {"window_size", 112},
            {"fullatt_block_indexes", {7, 15, 23, 31}},
            {"tokens_per_second", 2}}}};
}

// Every so many layers look at the whole picture.
void read_file_of_tower(const GgufSays& clip, Json& config) {
  Json& vision = config["vision_config"];
  vision["out_hidden_size"] = clip.needed("vision.projection_dim");
  const int64_t every = clip.needed("vision.n_wa_pattern"), layers = clip.needed("vision.block_count");
  require(every > 0 && layers <= 4096, Fault::Model, clip.header().where, ": n_wa_pattern is ", every, ", of ", layers,
          " layers");
  vision["fullatt_block_indexes"] = Json::array();
  for (int64_t i = every - 1; i < layers; i += every) vision["fullatt_block_indexes"].push_back(i);
}
void write_file_of_tower(const Json& config, GgufSettingsWriter& out) {
  const auto whole = config["vision_config"].value("fullatt_block_indexes", std::vector<int64_t>{7, 15, 23, 31});
  for (size_t i = 0; i < whole.size(); ++i)
    require(whole[i] + 1 == (whole[0] + 1) * static_cast<int64_t>(i + 1), Fault::Model,
            "config.json: fullatt_block_indexes are not every so many layers, as such files say it");
  out.own("use_silu", GgufValue::flag(true));
  out.whole("vision.n_wa_pattern", whole.empty() ? 0 : whole[0] + 1);
  out.whole("vision.image_size", 560);
}

GgufTower gguf_tower() {
  GgufTower tower =
      qwen_tower("qwen2.5vl_merger", "qwen2vl", "qwen2", {"mlp.up_proj", "mlp.down_proj", "ln_q", "mlp.0", "mlp.2"});
  tower.form.names.push_back({"mlp.gate_proj", "ffn_gate"});
  tower.form.keys.push_back({"hidden_size", "vision.embedding_length"});
  tower.form.keys.push_back({"intermediate_size", "vision.feed_forward_length"});
  tower.form.keys.push_back({"window_size", "vision.window_size"});
  tower.says["vision_config"].update({{"hidden_act", "silu"}, {"window_size", 112}, {"tokens_per_second", 2}});
  tower.read = read_file_of_tower, tower.write = write_file_of_tower;
  return tower;
}

// name          hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen2.5-vl-3b", 2048, 36, 16, 2, 0, 11008, 151936, 128000, 1e6, true, {}, sight(2048, 3420)},
    {"qwen2.5-vl-7b", 3584, 28, 28, 4, 0, 18944, 152064, 128000, 1e6, false, {}, sight(3584, 3420)},
    {"qwen2.5-vl-32b", 5120, 64, 40, 8, 0, 27648, 152064, 128000, 1e6, false, {}, sight(5120, 3456)},
    {"qwen2.5-vl-72b", 8192, 80, 64, 8, 0, 29568, 152064, 128000, 1e6, false, {}, sight(8192, 3456)},
};

const RegisterFamily qwen2_5_vl("qwen2_5_vl",
                                {.title = "Qwen2.5-VL",
                                 .architecture = "Qwen2_5_VLForConditionalGeneration",
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

}  // namespace apus::families::qwen2_5_vl
