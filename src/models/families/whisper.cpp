// SPDX-License-Identifier: Apache-2.0
// Whisper: an encoder hears half a minute, and a decoder like GPT-2's, every layer of which looks at all that was
// heard, writes it down. The token that begins a text stands for the sound.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"
#include "models/spec/seeing_spec.h"

namespace apus::families::whisper {

namespace {
// What its class in transformers takes where the file leaves it out.
Json with_defaults(const Config& c) {
  Json all = {{"vocab_size", 51865},
              {"d_model", 384},
              {"num_mel_bins", 80},
              {"encoder_layers", 4},
              {"encoder_attention_heads", 6},
              {"encoder_ffn_dim", 1536},
              {"decoder_layers", 4},
              {"decoder_attention_heads", 6},
              {"decoder_ffn_dim", 1536},
              {"max_target_positions", 448},
              {"decoder_start_token_id", 50257},
              {"activation_function", "gelu"},
              {"tie_word_embeddings", true}};
  all.update(c.json());
  return all;
}

// The decoder's sizes in the usual words, which the file has for the encoder's.
Json decoder_words(Json all) {
  for (const auto& [usual, own] : {std::pair{"hidden_size", "d_model"},
                                   {"num_hidden_layers", "decoder_layers"},
                                   {"num_attention_heads", "decoder_attention_heads"},
                                   {"num_key_value_heads", "decoder_attention_heads"},
                                   {"intermediate_size", "decoder_ffn_dim"},
                                   {"max_position_embeddings", "max_target_positions"},
                                   {"hidden_act", "activation_function"}})
    all[usual] = all[own];
  all.erase("head_dim");
  return all;
}

DecoderSpec read(const Config& c) {
  const Json all = with_defaults(c), words = decoder_words(all);
  DecoderSpec spec = read_decoder(Config(words), {.positions = 448, .tied = true});
  require(!c.flag("scale_embedding", false), Fault::Model,
          "config.json: scale_embedding true is not known in this family");
  spec.act = read_activation(Config(words), "hidden_act", "gelu");
  spec.backbone = "model.decoder", spec.final_norm = "layer_norm", spec.head_name = "proj_out";
  use_gpt_positions(spec, "embed_positions");
  use_opt_layers(spec, true);
  spec.attention.key_bias = false;
  spec.sound = SoundReading{};

  const HearingSpec hearing = read_half_minute_hearing(Config(all));
  spec.shape.picture_rows = hearing.chunk / 2, spec.shape.all_hear = true;
  SeeingSpec seeing;
  seeing.sound_token = Config(all).integer("decoder_start_token_id", 50257), seeing.time = TimeRule::Text;
  require(seeing.sound_token >= 0 && seeing.sound_token < spec.shape.vocab, Fault::Model,
          "config.json: decoder_start_token_id ", seeing.sound_token, " must lie inside the vocabulary of ",
          spec.shape.vocab);
  seeing.language = {spec.backbone, spec.head_name}, seeing.tower = {hearing.name};
  seeing.hearing = std::make_shared<const HearingSpec>(hearing);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json sizes(int64_t width, int64_t heads, int64_t heard_layers, int64_t layers, int64_t mels, int64_t start = 50258) {
  return {{"d_model", width},
          {"encoder_layers", heard_layers},
          {"encoder_attention_heads", heads},
          {"encoder_ffn_dim", 4 * width},
          {"decoder_layers", layers},
          {"decoder_attention_heads", heads},
          {"decoder_ffn_dim", 4 * width},
          {"num_mel_bins", mels},
          {"decoder_start_token_id", start}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"whisper-tiny", 384, 4, 6, 6, 0, 1536, 51865, 448, 1e4, true, {}, sizes(384, 6, 4, 4, 80)},
    {"whisper-base", 512, 6, 8, 8, 0, 2048, 51865, 448, 1e4, true, {}, sizes(512, 8, 6, 6, 80)},
    {"whisper-small", 768, 12, 12, 12, 0, 3072, 51865, 448, 1e4, true, {}, sizes(768, 12, 12, 12, 80)},
    {"whisper-medium", 1024, 24, 16, 16, 0, 4096, 51865, 448, 1e4, true, {}, sizes(1024, 16, 24, 24, 80)},
    {"whisper-large-v3", 1280, 32, 20, 20, 0, 5120, 51866, 448, 1e4, true, {}, sizes(1280, 20, 32, 32, 128)},
    {"whisper-large-v3-turbo", 1280, 4, 20, 20, 0, 5120, 51866, 448, 1e4, true, {}, sizes(1280, 20, 32, 4, 128)},
};

const RegisterFamily whisper("whisper", {.title = "Whisper",
                                         .architecture = "WhisperForConditionalGeneration",
                                         .read = read,
                                         .says = {{"activation_function", "gelu"},
                                                  {"max_source_positions", 1500},
                                                  {"max_target_positions", 448}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::whisper
