// SPDX-License-Identifier: Apache-2.0
// Voxtral: Llama (as Mistral has it) that hears through Whisper's encoder, four rows of which become one token.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"
#include "models/spec/use_hearing.h"

namespace apus::families::voxtral {

namespace {
// What files leave out of text_config is the 3B model's.
Json with_text_sizes(const Config& c) {
  Json whole = c.json();
  Json text = {{"vocab_size", 131072},
               {"hidden_size", 3072},
               {"intermediate_size", 8192},
               {"num_hidden_layers", 30},
               {"num_attention_heads", 32},
               {"num_key_value_heads", 8},
               {"max_position_embeddings", 131072},
               {"rms_norm_eps", 1e-5},
               {"rope_theta", 1e8},
               {"head_dim", 128}};
  text.update(part_of(c, "text_config").json());
  whole["text_config"] = std::move(text);
  return whole;
}

DecoderSpec read(const Config& c) {
  const std::string act = c.text("projector_hidden_act", "gelu");
  require(act == "gelu", Fault::Model, "config.json: projector_hidden_act '", act,
          "' is not known in this family, only gelu");
  const Json whole = with_text_sizes(c);
  DecoderSpec spec = read_text_part(Config(whole), "llama");
  const HearingSpec hearing = read_filled_hearing(part_of(c, "audio_config"), spec.shape.hidden);
  use_hearing(spec, hearing, c.integer("audio_token_id", 24), "audio_token_id");
  return spec;
}

Json llama_text_says() {
  return {{"text_config", {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"rms_norm_eps", 1e-5}}}};
}

// name              hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"voxtral-mini-3b", 3072, 30, 32, 8, 128, 8192, 131072, 131072, 1e8, false, {}, llama_text_says()},
    {"voxtral-small-24b", 5120, 40, 32, 8, 128, 32768, 131072, 131072, 1e8, false, {}, llama_text_says()},
};

const RegisterFamily voxtral("voxtral", {.title = "Voxtral",
                                         .architecture = "VoxtralForConditionalGeneration",
                                         .read = read,
                                         .says = {{"audio_token_id", 24},
                                                  {"projector_hidden_act", "gelu"},
                                                  {"audio_config",
                                                   {{"model_type", "voxtral_encoder"},
                                                    {"hidden_size", 1280},
                                                    {"num_hidden_layers", 32},
                                                    {"num_attention_heads", 20},
                                                    {"intermediate_size", 5120},
                                                    {"num_mel_bins", 128},
                                                    {"max_source_positions", 1500},
                                                    {"activation_function", "gelu"}}}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::voxtral
