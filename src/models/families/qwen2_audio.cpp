// SPDX-License-Identifier: Apache-2.0
// Qwen2-Audio: Qwen2 that hears through Whisper's encoder, half a minute as a whole.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"
#include "models/spec/use_hearing.h"

namespace apus::families::qwen2_audio {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_text_part(c, "qwen2");
  const HearingSpec hearing = read_whole_hearing(part_of(c, "audio_config"), spec.shape.hidden);
  const char* const key = c.find("audio_token_id") ? "audio_token_id" : "audio_token_index";
  use_hearing(spec, hearing, c.integer(key, 151646), key);
  return spec;
}

Json qwen_text_says() {
  return {{"text_config", {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}, {"rms_norm_eps", 1e-5}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen2-audio-7b", 4096, 32, 32, 32, 0, 11008, 156032, 8192, 1e4, false, {}, qwen_text_says()},
};

const RegisterFamily qwen2_audio("qwen2_audio", {.title = "Qwen2-Audio",
                                                 .architecture = "Qwen2AudioForConditionalGeneration",
                                                 .read = read,
                                                 .says = {{"audio_token_index", 151646},
                                                          {"audio_config",
                                                           {{"model_type", "qwen2_audio_encoder"},
                                                            {"d_model", 1280},
                                                            {"encoder_layers", 32},
                                                            {"encoder_attention_heads", 20},
                                                            {"encoder_ffn_dim", 5120},
                                                            {"num_mel_bins", 128},
                                                            {"max_source_positions", 1500},
                                                            {"activation_function", "gelu"}}}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::qwen2_audio
