// SPDX-License-Identifier: Apache-2.0
// Nomic BERT: norms of sums as BERT's, rotary positions, gates, no biases. Files that bring code of their own say its
// sizes in other words.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_encoder.h"

namespace apus::families::nomic_bert {

namespace {
Json usual_words(const Config& c) {
  Json words = in_usual_words(c, {{"n_embd", "hidden_size"},
                                  {"n_layer", "num_hidden_layers"},
                                  {"n_head", "num_attention_heads"},
                                  {"n_inner", "intermediate_size"},
                                  {"n_positions", "max_position_embeddings"},
                                  {"layer_norm_epsilon", "layer_norm_eps"},
                                  {"rotary_emb_base", "rope_theta"}});
  if (const std::string act = c.text("activation_function", ""); !act.empty() && !words.contains("hidden_act")) {
    require(act == "swiglu", Fault::Model, "config.json: activation_function '", act,
            "' is not known in this family, only swiglu");
    words["hidden_act"] = "silu";
  }
  return words;
}

// What the first files may ask for besides.
void refuse_other_forms(const Config& c) {
  for (const char* key : {"prenorm", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_interleaved",
                          "use_rms_norm", "parallel_block"})
    require(!c.flag(key, false), Fault::Model, "config.json: ", key, " true is not known in this family");
  require(c.number("rotary_emb_fraction", 1) == 1 && !c.find("rotary_emb_scale_base"), Fault::Model,
          "config.json: rotary_emb_fraction other than 1 and rotary_emb_scale_base are not known in this family");
}

DecoderSpec read(const Config& c) {
  const EncoderDefaults defaults{.vocab = 30528, .positions = 2048, .act = "silu"};
  const Json all = with_encoder_sizes(Config(usual_words(c)), defaults);
  refuse_other_forms(c);
  DecoderSpec spec = read_decoder(Config(all), {.positions = defaults.positions, .rope = {.theta = 1000}});
  read_both_ways(Config(all), spec, defaults);
  spec.backbone = "nomic_bert", spec.layers_name = "encoder.layers";
  spec.embed_name = "embeddings.word_embeddings", spec.embedding_norm = "emb_ln", spec.final_norm = "";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = Config(all).number("layer_norm_eps", 1e-12)};
  norms_of_sums(spec, "norm1", "norm2");
  spec.attention_name = "attn";
  spec.attention.fused = Fused::Blocks, spec.attention.fused_name = "Wqkv", spec.attention.out_name = "out_proj";
  use_names(spec, {.gate = "fc12", .up = "fc11", .down = "fc2"});
  EncoderForm& form = *spec.encoder;
  form.types_name = "embeddings.token_type_embeddings", form.tells_apart = form.types > 1;
  form.head.dense = "nomic_bert.pooler.dense";
  form.unread = {"cls.", "pooler.", "nomic_bert.pooler.", "classifier."};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"nomic-embed-v1.5", 768, 12, 12, 12, 0, 3072, 30528, 2048, 1e3, true},
};

const RegisterFamily nomic_bert(
    "nomic_bert",
    {.title = "Nomic BERT", .architecture = "NomicBertModel", .read = read, .encoder = true, .presets = presets});
}  // namespace

}  // namespace apus::families::nomic_bert
