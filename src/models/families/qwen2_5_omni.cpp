// SPDX-License-Identifier: Apache-2.0
// Qwen2.5-Omni: its thinker is Qwen2.5-VL that hears; what it says can be spoken (models/spec/read_flow_speech.cpp).
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_omni.h"
#include "models/spec/speech_spec.h"

namespace apus::families::qwen2_5_omni {

namespace {
DecoderSpec read(const Config& whole) {
  const Config c = thinker_part(whole);
  const Config text = text_part(c), vision = part_of(c, "vision_config");
  DecoderSpec spec = read_decoder(text, {.kv_heads = 4, .ffn = 18944});
  spec.attention.qkv_bias = true;
  spec.window = read_windows(text, spec.shape.layers, if_asked(text, Slides::Above));
  SeeingSpec seeing{.vision = read_vision(vision, "hidden_size"), .time = TimeRule::Times};
  use_windowed_tower(vision, seeing.vision);
  seeing.vision.names.qkv = nullptr;
  seeing.positions_per_second = c.number("position_id_per_seconds", 25);
  seeing.seconds_per_turn = c.number("seconds_per_chunk", 2);
  use_senses(c, spec, std::move(seeing), read_hearing(part_of(c, "audio_config"), HearingSpec::Front::Line),
             "_token_index");
  return spec;
}

Json senses(int64_t out) {
  return {{"vision_config",
           {{"depth", 32},
            {"hidden_act", "silu"},
            {"hidden_size", 1280},
            {"intermediate_size", 3420},
            {"num_heads", 16},
            {"in_channels", 3},
            {"out_hidden_size", out},
            {"patch_size", 14},
            {"spatial_merge_size", 2},
            {"temporal_patch_size", 2},
            {"window_size", 112},
            {"fullatt_block_indexes", {7, 15, 23, 31}}}},
          {"audio_config",
           {{"d_model", 1280},
            {"encoder_layers", 32},
            {"encoder_attention_heads", 20},
            {"encoder_ffn_dim", 5120},
            {"num_mel_bins", 128},
            {"n_window", 100},
            {"output_dim", out}}}};
}

// name             hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen2.5-omni-3b", 2048, 36, 16, 2, 128, 11008, 151936, 32768, 1e6, false, {}, senses(2048)},
    {"qwen2.5-omni-7b", 3584, 28, 28, 4, 128, 18944, 152064, 32768, 1e6, false, {}, senses(3584)},
};

const RegisterFamily qwen2_5_omni("qwen2_5_omni",
                                  {.title = "Qwen2.5-Omni",
                                   .architecture = "Qwen2_5OmniModel",
                                   .read = read,
                                   .says = {{"use_sliding_window", false},
                                            {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
                                            {"position_id_per_seconds", 25},
                                            {"seconds_per_chunk", 2},
                                            {"image_token_index", 151655},
                                            {"video_token_index", 151656},
                                            {"audio_token_index", 151646},
                                            {"audio_start_token_id", 151647},
                                            {"vision_start_token_id", 151652},
                                            {"vision_end_token_id", 151653}},
                                   .presets = presets});
const RegisterSpeech speech("qwen2_5_omni", read_flow_speech);
}  // namespace

}  // namespace apus::families::qwen2_5_omni
