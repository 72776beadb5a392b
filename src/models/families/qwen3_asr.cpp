// SPDX-License-Identifier: Apache-2.0
// Qwen3-ASR: Qwen3 that hears as Qwen3-Omni does, and writes down what it hears.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_omni.h"
#include "models/spec/read_tower.h"

namespace apus::families::qwen3_asr {

namespace {
HearingSpec read_ears(const Config& c, int64_t hidden) {
  Json said = {{"encoder_layers", 24}, {"encoder_attention_heads", 16}, {"encoder_ffn_dim", 4096},
               {"d_model", 1024},      {"n_window_infer", 800},         {"n_window", 50}};
  said.update(part_of(c, "audio_config").json());
  HearingSpec hearing = read_hearing(Config(said), HearingSpec::Front::Plane);
  hearing.name = "model.audio_tower";
  hearing.projections = {"model.multi_modal_projector.linear_1", "model.multi_modal_projector.linear_2"};
  require(hearing.out == hidden, Fault::Model, "config.json: audio_config: output_dim ", hearing.out,
          " is not the text part's hidden_size ", hidden);
  return hearing;
}

DecoderSpec read(const Config& whole) {
  const Config c = thinker_part(whole);
  DecoderSpec spec = read_text_part(c, "qwen3");
  spec.tied = whole.flag("tie_word_embeddings", c.flag("tie_word_embeddings", true));
  const HearingSpec hearing = read_ears(c, spec.shape.hidden);
  SeeingSpec seeing;
  seeing.sound_token = c.integer("audio_token_id", 151676);
  require(seeing.sound_token >= 0 && seeing.sound_token < spec.shape.vocab, Fault::Model,
          "config.json: audio_token_id ", seeing.sound_token, " must lie inside the vocabulary of ", spec.shape.vocab);
  seeing.time = TimeRule::Text;
  seeing.language = {spec.backbone, spec.head_name};
  seeing.tower = {hearing.name}, seeing.aligner = {"model.multi_modal_projector"};
  // As transformers writes it, and as its authors did.
  seeing.forms = {{},
                  {.renames = {{"model.language_model.", "thinker.model."},
                               {"lm_head.", "thinker.lm_head."},
                               {"model.audio_tower.", "thinker.audio_tower."},
                               {"model.multi_modal_projector.linear_1.", "thinker.audio_tower.proj1."},
                               {"model.multi_modal_projector.linear_2.", "thinker.audio_tower.proj2."}}}};
  seeing.hearing = std::make_shared<const HearingSpec>(hearing);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json parts(int64_t layers, int64_t width, int64_t heads, int64_t ffn, int64_t out) {
  return {{"text_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}},
          {"audio_config",
           {{"model_type", "qwen3_asr_encoder"},
            {"encoder_layers", layers},
            {"d_model", width},
            {"encoder_attention_heads", heads},
            {"encoder_ffn_dim", ffn},
            {"output_dim", out},
            {"num_mel_bins", 128},
            {"n_window", 50},
            {"n_window_infer", 800},
            {"downsample_hidden_size", 480}}}};
}

// name             hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen3-asr-0.6b", 1024, 28, 16, 8, 128, 3072, 151936, 65536, 1e6, true, {}, parts(18, 896, 14, 3584, 1024)},
    {"qwen3-asr-1.7b", 2048, 28, 16, 8, 128, 6144, 151936, 65536, 1e6, true, {}, parts(24, 1024, 16, 4096, 2048)},
};

const RegisterFamily qwen3_asr("qwen3_asr", {.title = "Qwen3-ASR",
                                             .architecture = "Qwen3ASRForConditionalGeneration",
                                             .read = read,
                                             .says = {{"audio_token_id", 151676}},
                                             .presets = presets});
}  // namespace

}  // namespace apus::families::qwen3_asr
