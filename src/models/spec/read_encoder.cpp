// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_encoder.h"

#include "base/error.h"
#include "models/spec/read_decoder.h"

namespace apus {

Json with_encoder_sizes(const Config& c, const EncoderDefaults& defaults) {
  Json all = c.json();
  const Json usual = {{"hidden_size", 768},
                      {"num_hidden_layers", 12},
                      {"num_attention_heads", 12},
                      {"intermediate_size", 3072},
                      {"vocab_size", defaults.vocab},
                      {"hidden_act", defaults.act},
                      {"max_position_embeddings", defaults.positions}};
  for (const auto& [key, value] : usual.items())
    if (!c.find(key.c_str())) all[key] = value;
  // These families know no fewer keys than queries, and no other heads.
  all["num_key_value_heads"] = all["num_attention_heads"], all.erase("head_dim");
  return all;
}

void read_both_ways(const Config& c, DecoderSpec& spec, const EncoderDefaults& defaults) {
  require(!c.flag("is_decoder", false) && !c.flag("add_cross_attention", false), Fault::Model,
          "config.json: is_decoder and add_cross_attention make a decoder of ", c.text("model_type", ""),
          ", which is not known");
  spec.encoder = EncoderForm{.types = c.integer("type_vocab_size", defaults.types)};
  spec.attention.both_ways = true;
  spec.pad = defaults.pad;
}

void norms_of_sums(DecoderSpec& spec, const char* of_attention, const char* of_feed_forward) {
  spec.norms = {.before_attention = "",
                .after_attention = of_attention,
                .before_feed_forward = "",
                .after_feed_forward = of_feed_forward,
                .of_sums = true};
}

EncoderHead roberta_head() {
  return {.dense = "classifier.dense", .out = "classifier.out_proj", .saved = {"classifier"}};
}

DecoderSpec read_bert(const Config& c, const char* backbone, const EncoderDefaults& defaults) {
  const Json all = with_encoder_sizes(c, defaults);
  DecoderSpec spec = read_decoder(Config(all), {.positions = defaults.positions});
  require(c.text("position_embedding_type", "absolute") == "absolute", Fault::Model,
          "config.json: position_embedding_type '", c.text("position_embedding_type", ""),
          "' is not known, only absolute: positions out of a table");
  read_both_ways(c, spec, defaults);
  spec.backbone = backbone, spec.embed_name = "embeddings.word_embeddings", spec.layers_name = "encoder.layer";
  spec.embedding_norm = "embeddings.LayerNorm", spec.final_norm = "";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_eps", 1e-12)};
  norms_of_sums(spec, "attention.output.LayerNorm", "output.LayerNorm");
  spec.shape.max_positions -= defaults.before;
  require(spec.shape.max_positions > 0, Fault::Model, "config.json: max_position_embeddings must be above ",
          defaults.before);
  spec.position_table = PositionTable{.name = "embeddings.position_embeddings", .before = defaults.before};
  turn_only(spec, [](size_t) { return false; });
  spec.attention_name = "attention";
  AttentionForm& attention = spec.attention;
  attention.qkv_bias = attention.out_bias = true;
  attention.q_name = "self.query", attention.k_name = "self.key", attention.v_name = "self.value";
  attention.out_name = "output.dense";
  spec.dense_name = "";
  use_plain(spec, {.up = "intermediate.dense", .down = "output.dense"}, true);
  EncoderForm& form = *spec.encoder;
  form.types_name = "embeddings.token_type_embeddings";
  form.unread = {"cls.", "lm_head.", "qa_outputs.", "pooler.", spec.backbone + ".pooler.", "classifier."};
  // Older files have other names for a norm's numbers.
  spec.forms = {{}, {.inside = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}}};
  return spec;
}

DecoderSpec read_roberta(const Config& c, int64_t vocab) {
  DecoderSpec spec = read_bert(c, "roberta", {.vocab = vocab, .before = c.integer("pad_token_id", 1) + 1, .pad = 1});
  spec.encoder->head = roberta_head();
  return spec;
}

}  // namespace apus
