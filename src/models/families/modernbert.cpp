// SPDX-License-Identifier: Apache-2.0
// ModernBERT: norms before branches, rotary positions, gates, and most layers see their neighbourhood only.
#include "models/families/modernbert.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_encoder.h"

namespace apus {

void use_modernbert_layers(const Config& c, Json words, int64_t window, DecoderSpec& spec) {
  const int64_t every = c.integer("global_attn_every_n_layers", 3);
  require(every > 0, Fault::Model, "config.json: global_attn_every_n_layers must be above 0");
  words["sliding_window"] = window;
  spec.window = read_windows(Config(words), spec.shape.layers, [every](int64_t layer) { return layer % every != 0; });
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
}

}  // namespace apus

namespace apus::families::modernbert {

namespace {
EncoderHead read_head(const Config& c) {
  const std::string pooling = c.text("classifier_pooling", "cls");
  require(pooling == "cls" || pooling == "mean", Fault::Model, "config.json: classifier_pooling '", pooling,
          "' is not known; known: cls, mean");
  return {.reads = pooling == "cls" ? Pooling::First : Pooling::Mean,
          .dense = "head.dense",
          .norm = "head.norm",
          .dense_bias = c.flag("classifier_bias", false),
          .act = read_activation(c, "classifier_activation", "gelu")};
}

DecoderSpec read(const Config& c) {
  const EncoderDefaults defaults{.vocab = 50368, .positions = 8192, .types = 0, .pad = 50283};
  Json words = in_usual_words(c, {{"hidden_activation", "hidden_act"}, {"global_rope_theta", "rope_theta"}});
  if (!words.contains("num_hidden_layers")) words["num_hidden_layers"] = 22;
  if (!words.contains("intermediate_size")) words["intermediate_size"] = 1152;
  const Json all = with_encoder_sizes(Config(words), defaults);
  DecoderSpec spec = read_decoder(
      Config(all),
      {.positions = defaults.positions, .mlp_bias = true, .rope = {.theta = 160000, .of = RopeOf::FullLayers}});
  read_both_ways(c, spec, defaults);
  const int64_t width = c.integer("local_attention", 128);
  require(width > 0, Fault::Model, "config.json: local_attention must be above 0");
  // Half of the width on each side, and the token itself.
  use_modernbert_layers(c, all, width / 2 + 1, spec);
  spec.attention.fused = Fused::Blocks, spec.attention.fused_name = "Wqkv";
  EncoderForm& form = *spec.encoder;
  form.types = 0, form.head = read_head(c), form.token_head_is_whole = true;
  form.unread = {"head.", "decoder.", "classifier.", "qa_outputs."};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"modernbert-base", 768, 22, 12, 12, 0, 1152, 50368, 8192, 16e4, true},
    {"modernbert-large", 1024, 28, 16, 16, 0, 2624, 50368, 8192, 16e4, true},
};

const RegisterFamily modernbert("modernbert", {.title = "ModernBERT",
                                               .architecture = "ModernBertModel",
                                               .read = read,
                                               .encoder = true,
                                               .says = {{"hidden_act", "gelu"}},
                                               .presets = presets});
}  // namespace

}  // namespace apus::families::modernbert
