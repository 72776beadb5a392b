// SPDX-License-Identifier: Apache-2.0
// Falcon: attention and a plain feed-forward side by side, few keys for many heads, all made by one matrix.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::falcon {

namespace {
DecoderSpec read(const Config& c) {
  Json all = in_usual_words(c, {{"n_layer", "num_hidden_layers"},
                                {"n_head", "num_attention_heads"},
                                {"n_embed", "hidden_size"},
                                {"ffn_hidden_size", "intermediate_size"}});
  const int64_t hidden = Config(all).integer("hidden_size"), heads = Config(all).integer("num_attention_heads");
  const bool newer = c.flag("new_decoder_architecture", false), side_by_side = c.flag("parallel_attn", true);
  const bool one = !newer && c.flag("multi_query", true);
  if (!all.contains("intermediate_size")) all["intermediate_size"] = 4 * hidden;
  all["num_key_value_heads"] = one     ? 1
                               : newer ? c.integer("num_kv_heads", Config(all).integer("num_key_value_heads", heads))
                                       : heads;
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048, .tied = true});
  require(!c.flag("alibi", false) && (side_by_side || !newer), Fault::Model,
          "config.json: Falcon with alibi, or with new_decoder_architecture and no parallel_attn, is not known");
  spec.act = read_activation(Config(all), c.find("activation") ? "activation" : "hidden_act", "gelu");
  const bool bias = c.flag("bias", false);
  spec.backbone = "transformer", spec.embed_name = "word_embeddings", spec.layers_name = "h", spec.final_norm = "ln_f";
  spec.attention_name = "self_attention";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_epsilon", 1e-5)};
  spec.parallel = side_by_side;
  if (newer && c.integer("num_ln_in_parallel_attn", 2) == 2)
    spec.norms.before_attention = "ln_attn", spec.norms.before_feed_forward = "ln_mlp";
  else if (side_by_side)
    spec.norms.before_feed_forward = "";
  spec.attention = {
      .qkv_bias = bias, .out_bias = bias, .fused = Fused::Groups, .fused_name = "query_key_value", .out_name = "dense"};
  use_plain(spec, {.up = "dense_h_to_4h", .down = "dense_4h_to_h"}, bias);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"falcon-7b", 4544, 32, 71, 1, 0, 18176, 65024, 2048, 1e4, true},
    {"falcon-11b",
     4096,
     60,
     32,
     8,
     0,
     16384,
     65024,
     8192,
     500042,
     false,
     {},
     {{"new_decoder_architecture", true}, {"num_ln_in_parallel_attn", 1}}},
    {"falcon-40b", 8192, 60, 128, 8, 0, 32768, 65024, 2048, 1e4, true, {}, {{"new_decoder_architecture", true}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  const bool two = file.tensor("blk.0.attn_norm_2.weight") != nullptr;
  const int64_t heads = config["num_key_value_heads"].get<int64_t>();
  config["new_decoder_architecture"] = two || (heads > 1 && heads < config["num_attention_heads"].get<int64_t>());
  config["multi_query"] = heads == 1;
  config["num_kv_heads"] = heads;
  config["num_ln_in_parallel_attn"] = two ? 2 : 1;
  config["bias"] = file.tensor("blk.0.attn_qkv.bias") != nullptr;
}

const GgufForm gguf = {.architecture = "falcon",
                       .names = {{"transformer.word_embeddings", "token_embd"},
                                 {"transformer.ln_f", "output_norm"},
                                 {"ln_attn", "attn_norm_2"},
                                 {"ln_mlp", "attn_norm"},
                                 {"input_layernorm", "attn_norm"},
                                 {"self_attention.query_key_value", "attn_qkv", {.rows = blocks_of_groups}},
                                 {"self_attention.dense", "attn_output"},
                                 {"mlp.dense_h_to_4h", "ffn_up"},
                                 {"mlp.dense_4h_to_h", "ffn_down"}},
                       .layers = "transformer.h.",
                       .eps = words::mean_eps("layer_norm_epsilon"),
                       .says = {{"hidden_act", "gelu"}, {"parallel_attn", true}},
                       .read = read_gguf};

const RegisterFamily falcon("falcon", {.title = "Falcon",
                                       .architecture = "FalconForCausalLM",
                                       .read = read,
                                       .says = {{"hidden_act", "gelu"}, {"parallel_attn", true}},
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::falcon
