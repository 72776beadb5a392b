// SPDX-License-Identifier: Apache-2.0
// ModernBERT's decoder (Ettin): as the encoder, but looking back only, with queries, keys and values apart; a matrix
// and a norm before the head of words, which is the embedding and has a bias.
#include "base/error.h"
#include "models/families/modernbert.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::modernbert_decoder {

namespace {
DecoderSpec read(const Config& c) {
  Json words = in_usual_words(c, {{"hidden_activation", "hidden_act"}, {"global_rope_theta", "rope_theta"}});
  if (!words.contains("hidden_act")) words["hidden_act"] = "gelu";
  DecoderSpec spec = read_decoder(Config(words), {.positions = 8192,
                                                  .ffn = 1152,
                                                  .mlp_bias = true,
                                                  .tied = true,
                                                  .rope = {.theta = 160000, .of = RopeOf::FullLayers}});
  // Half of what the encoder sees on both sides together, where the file does not say it itself.
  const int64_t width = c.integer("local_attention", 128);
  require(width > 1, Fault::Model, "config.json: local_attention must be above 1");
  use_modernbert_layers(c, words, c.integer("sliding_window", width / 2), spec);
  spec.head_name = "decoder", spec.head_bias = c.flag("decoder_bias", true);
  spec.head_dense = {.dense = "lm_head.dense",
                     .norm = "lm_head.norm",
                     .bias = c.flag("classifier_bias", false),
                     .act = read_activation(c, "classifier_activation", "gelu")};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ettin-decoder-150m", 768, 22, 12, 12, 0, 1152, 50368, 8192, 16e4, true},
    {"ettin-decoder-1b", 1792, 28, 28, 28, 0, 3840, 50368, 8192, 16e4, true},
};

const RegisterFamily modernbert_decoder("modernbert-decoder", {.title = "ModernBERT decoder (Ettin)",
                                                               .architecture = "ModernBertDecoderForCausalLM",
                                                               .read = read,
                                                               .says = {{"hidden_act", "gelu"}},
                                                               .presets = presets});
}  // namespace

}  // namespace apus::families::modernbert_decoder
