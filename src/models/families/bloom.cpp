// SPDX-License-Identifier: Apache-2.0
// BLOOM: positions are told by slopes; a norm behind the embedding; one matrix holds query, key and value of one head
// after the other.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::bloom {

namespace {
DecoderSpec read(const Config& c) {
  Json all = in_usual_words(c, {{"n_layer", "num_hidden_layers"},
                                {"n_head", "num_attention_heads"},
                                {"n_embed", "hidden_size"},
                                {"seq_length", "max_position_embeddings"}});
  all["intermediate_size"] = 4 * Config(all).integer("hidden_size");
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048, .tied = true});
  require(!c.flag("apply_residual_connection_post_layernorm", false), Fault::Model,
          "config.json: apply_residual_connection_post_layernorm is not known in this family");
  spec.act = Activation::GeluTanh;
  spec.backbone = "transformer", spec.embed_name = "word_embeddings", spec.layers_name = "h", spec.final_norm = "ln_f";
  spec.embedding_norm = "word_embeddings_layernorm", spec.attention_name = "self_attention";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_epsilon", 1e-5)};
  spec.attention = {
      .qkv_bias = true, .out_bias = true, .fused = Fused::Groups, .fused_name = "query_key_value", .out_name = "dense"};
  use_slopes(spec, usual_slopes(spec.shape.heads));
  use_plain(spec, {.up = "dense_h_to_4h", .down = "dense_4h_to_h"}, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"bloom-560m", 1024, 24, 16, 16, 0, 4096, 250880, 2048, 1e4, true},
    {"bloom-1b7", 2048, 24, 16, 16, 0, 8192, 250880, 2048, 1e4, true},
    {"bloom-7b1", 4096, 30, 32, 32, 0, 16384, 250880, 2048, 1e4, true},
    {"bloom-176b", 14336, 70, 112, 112, 0, 57344, 250880, 2048, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "bloom",
                       .names = {{"transformer.word_embeddings", "token_embd"},
                                 {"transformer.word_embeddings_layernorm", "token_embd_norm"},
                                 {"transformer.ln_f", "output_norm"},
                                 {"self_attention.query_key_value", "attn_qkv", {.rows = blocks_of_groups}},
                                 {"self_attention.dense", "attn_output"},
                                 {"mlp.dense_h_to_4h", "ffn_up"},
                                 {"mlp.dense_4h_to_h", "ffn_down"}},
                       .layers = "transformer.h.",
                       .eps = words::mean_eps("layer_norm_epsilon")};

const RegisterFamily bloom("bloom", {.title = "BLOOM and BLOOMZ",
                                     .architecture = "BloomForCausalLM",
                                     .read = read,
                                     .says = {{"layer_norm_epsilon", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::bloom
