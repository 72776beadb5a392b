// SPDX-License-Identifier: Apache-2.0
// DistilBERT: BERT without types and pooler, under names of its own.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_encoder.h"

namespace apus::families::distilbert {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = in_usual_words(c, {{"dim", "hidden_size"},
                                      {"n_layers", "num_hidden_layers"},
                                      {"n_heads", "num_attention_heads"},
                                      {"hidden_dim", "intermediate_size"},
                                      {"activation", "hidden_act"}});
  Json words = all;
  if (!words.contains("num_hidden_layers")) words["num_hidden_layers"] = 6;
  words.erase("type_vocab_size"), words.erase("layer_norm_eps");  // it knows neither
  DecoderSpec spec = read_bert(Config(words), "distilbert", {.types = 0});
  spec.layers_name = "transformer.layer";
  spec.norms.after_attention = "sa_layer_norm", spec.norms.after_feed_forward = "output_layer_norm";
  AttentionForm& attention = spec.attention;
  attention.q_name = "q_lin", attention.k_name = "k_lin", attention.v_name = "v_lin", attention.out_name = "out_lin";
  spec.dense_name = "ffn";
  use_plain(spec, {.up = "lin1", .down = "lin2"}, true);
  EncoderForm& form = *spec.encoder;
  form.head.dense = "pre_classifier", form.head.act = Activation::Relu;
  form.head.saved = {"pre_classifier", "classifier"};
  form.unread = {"vocab_transform.", "vocab_layer_norm.", "vocab_projector.",
                 "qa_outputs.",      "pre_classifier.",   "classifier."};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"distilbert-base", 768, 6, 12, 12, 0, 3072, 30522, 512, 1e4, true},
};

const RegisterFamily distilbert("distilbert", {.title = "DistilBERT",
                                               .architecture = "DistilBertModel",
                                               .read = read,
                                               .encoder = true,
                                               .says = {{"hidden_act", "gelu"}},
                                               .presets = presets});
}  // namespace

}  // namespace apus::families::distilbert
