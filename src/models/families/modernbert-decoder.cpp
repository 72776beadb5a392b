// SPDX-License-Identifier: Apache-2.0
// ModernBERT's decoder (Ettin): as the encoder, but looking back only, with queries, keys and values apart; a matrix
// and a norm before the head of words, which is the embedding and has a bias.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus {

namespace {
// Half of what the encoder sees on both sides together, where the file does not say it itself.
void read_neighbourhoods(const Config& c, DecoderSpec& spec) {
  const int64_t every = c.integer("global_attn_every_n_layers", 3), width = c.integer("local_attention", 128);
  require(every > 0 && width > 1, Fault::Model,
          "config.json: global_attn_every_n_layers must be above 0 and local_attention above 1");
  Json words = c.json();
  if (!c.find("sliding_window")) words["sliding_window"] = width / 2;
  spec.window = read_windows(Config(words), spec.shape.layers, [every](int64_t layer) { return layer % every != 0; });
}

DecoderSpec read(const Config& c) {
  Json words = in_usual_words(c, {{"hidden_activation", "hidden_act"}, {"global_rope_theta", "rope_theta"}});
  if (!words.contains("hidden_act")) words["hidden_act"] = "gelu";
  DecoderSpec spec = read_decoder(Config(words), {.positions = 8192,
                                                  .ffn = 1152,
                                                  .mlp_bias = true,
                                                  .tied = true,
                                                  .rope = {.theta = 160000, .of = RopeOf::FullLayers}});
  read_neighbourhoods(c, spec);
  words["rope_theta"] = c.number("local_rope_theta", 10000);
  turn_sliding_layers(spec, read_rope(Config(words), spec.shape.head_dim, spec.shape.max_positions,
                                      {.theta = 10000, .of = RopeOf::SlidingLayers}));
  spec.embed_name = "embeddings.tok_embeddings", spec.embedding_norm = "embeddings.norm";
  spec.final_norm = "final_norm", spec.attention_name = "attn", spec.first_reads_bare = true;
  spec.norm = {.kind = c.flag("norm_bias", false) ? NormKind::MeanAndBias : NormKind::Mean,
               .eps = c.number("norm_eps", 1e-5)};
  spec.norms = {.before_attention = "attn_norm", .before_feed_forward = "mlp_norm"};
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.attention.out_name = "Wo";
  use_kind(spec, FeedForwardKind::FusedGate, c.flag("mlp_bias", false));
  use_names(spec, {.up = "Wi", .down = "Wo"});
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

}  // namespace apus
