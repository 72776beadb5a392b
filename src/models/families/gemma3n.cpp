// SPDX-License-Identifier: Apache-2.0
// Gemma 3n that sees and hears: a MobileNet-V5 and a conformer. A picture is 256 tokens and a sound 188, the last of
// which stand for nothing; tokens around media have rows in tables of their own.
#include "models/families/gemma3n.h"

#include "base/error.h"
#include "models/spec/conformer_spec.h"
#include "models/spec/family.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/mobile_spec.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::gemma3n {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "gemma3n_text");
  const Json nothing_said = Json::object();
  const auto part = [&](const char* key) { return c.find(key) ? part_of(c, key) : Config(nothing_said); };
  const int64_t vocab = text.shape.vocab, hidden = text.shape.hidden;
  const MobileSpec eyes = read_mobile(part("vision_config"), hidden, c.integer("vision_soft_tokens_per_image", 256));
  const ConformerSpec ears =
      read_conformer(part("audio_config"), hidden, c.integer("audio_soft_tokens_per_image", 188), vocab - 1);
  SeeingSpec seeing{.vision = vision_of(eyes)};
  seeing.mobile = std::make_shared<const MobileSpec>(eyes);
  seeing.hearing = std::make_shared<const HearingSpec>(hearing_of(ears));
  for (const EmbedderForm& form : {eyes.embedder, ears.embedder})
    seeing.own_words.push_back(std::make_shared<const EmbedderForm>(form));
  seeing.image_token = c.integer("image_token_id", 262145), seeing.sound_token = c.integer("audio_token_id", 262273);
  require(seeing.sound_token >= 0 && seeing.sound_token < vocab, Fault::Model, "config.json: audio_token_id ",
          seeing.sound_token, " must lie inside the vocabulary of ", vocab);
  seeing.forms = {{}};
  text.tied |= c.flag("tie_word_embeddings", true);
  return with_tower(c, std::move(text), std::move(seeing));
}

Json preset_says(int64_t shared) {
  Json text = text_says();
  text.update({{"model_type", "gemma3n_text"},
               {"architectures", {"Gemma3nForCausalLM"}},
               {"hidden_activation", "gelu_pytorch_tanh"},
               {"num_kv_shared_layers", shared}});
  return {{"text_config", text}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma3n-e2b-sees", 2048, 30, 8, 2, 256, 8192, 262400, 32768, 1e6, true, {}, preset_says(10)},
    {"gemma3n-e4b-sees", 2048, 35, 8, 2, 256, 16384, 262400, 32768, 1e6, true, {}, preset_says(15)},
};

const RegisterFamily gemma3n_sees("gemma3n", {.title = "Gemma 3n",
                                              .architecture = "Gemma3nForConditionalGeneration",
                                              .read = read,
                                              .says = {{"image_token_id", 262145},
                                                       {"audio_token_id", 262273},
                                                       {"audio_soft_tokens_per_image", 188},
                                                       {"vision_soft_tokens_per_image", 256},
                                                       {"audio_config",
                                                        {{"model_type", "gemma3n_audio"},
                                                         {"hidden_size", 1536},
                                                         {"conf_num_hidden_layers", 12},
                                                         {"conf_num_attention_heads", 8},
                                                         {"input_feat_size", 128},
                                                         {"vocab_size", 128},
                                                         {"vocab_offset", 262272}}},
                                                       {"vision_config",
                                                        {{"model_type", "gemma3n_vision"},
                                                         {"architecture", "mobilenetv5_300m_enc"},
                                                         {"hidden_size", 2048},
                                                         {"vocab_size", 128},
                                                         {"vocab_offset", 262144}}}},
                                              .presets = presets});
}  // namespace

}  // namespace apus::families::gemma3n
