// SPDX-License-Identifier: Apache-2.0
// Qwen3-Omni: its thinker is Qwen3-VL-MoE that hears, with the steps of a video in one block; what it says can be
// spoken (models/spec/read_speech.cpp).
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_omni.h"
#include "models/spec/read_qwen3_vl.h"
#include "models/spec/speech_spec.h"

namespace apus::families::qwen3_omni_moe {

namespace {
DecoderSpec read(const Config& whole) {
  const Config c = thinker_part(whole), text = text_part(c);
  DecoderSpec spec = read_decoder(text, {.kv_heads = 4, .positions = 65536, .ffn = 768, .head_dim = 128});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = text.flag("attention_bias", false);
  use_qwen_experts(text, spec,
                   {.experts = read_expert_count(text),
                    .per_token = text.integer("num_experts_per_tok", 8),
                    .ffn = text.integer("moe_intermediate_size", 768),
                    .router = {.normalise = text.flag("norm_topk_prob", true)}});
  SeeingSpec seeing = read_qwen3_sight(c);
  seeing.time = TimeRule::Exact;
  seeing.positions_per_second = c.number("position_id_per_seconds", 13);
  seeing.vision.names.merger_norm = "ln_q", seeing.vision.names.merger_in = "mlp.0";
  seeing.vision.names.merger_out = "mlp.2", seeing.vision.names.deep_mergers = "merger_list";
  use_senses(c, spec, std::move(seeing), read_hearing(part_of(c, "audio_config"), HearingSpec::Front::Plane),
             "_token_id");
  return spec;
}

Json senses() {
  Json says = qwen3_tower_says(2048, false);
  says["audio_config"] = {{"d_model", 1280},         {"encoder_layers", 32}, {"encoder_attention_heads", 20},
                          {"encoder_ffn_dim", 5120}, {"num_mel_bins", 128},  {"n_window", 50},
                          {"n_window_infer", 800},   {"output_dim", 2048},   {"downsample_hidden_size", 480}};
  return says;
}

constexpr MixtureSpec mixture{.experts = 128, .per_token = 8, .ffn = 768, .router = {.normalise = true}};

Json says() {
  Json all = qwen3_sight_says();
  all.update({{"position_id_per_seconds", 13}, {"audio_token_id", 151675}, {"audio_start_token_id", 151669}});
  return all;
}

// name                  hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3-omni-30b-a3b", 2048, 48, 32, 4, 128, 768, 152064, 65536, 1e6, false, mixture, senses()},
};

const RegisterFamily qwen3_omni_moe("qwen3_omni_moe", {.title = "Qwen3-Omni",
                                                       .architecture = "Qwen3OmniMoeForConditionalGeneration",
                                                       .read = read,
                                                       .says = says(),
                                                       .presets = presets});
const RegisterSpeech speech("qwen3_omni_moe", read_qwen3_speech);
}  // namespace

}  // namespace apus::families::qwen3_omni_moe
