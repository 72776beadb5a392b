// SPDX-License-Identifier: Apache-2.0
// ChatGLM2 and 3, GLM-4-9B (2024) in the layout of their own code: few keys, half of each head turned, neighbours
// together; gate and up in one matrix.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::chatglm {

namespace {
DecoderSpec read(const Config& c) {
  Json all = in_usual_words(c, {{"num_layers", "num_hidden_layers"},
                                {"ffn_hidden_size", "intermediate_size"},
                                {"padded_vocab_size", "vocab_size"},
                                {"seq_length", "max_position_embeddings"},
                                {"kv_channels", "head_dim"},
                                {"layernorm_epsilon", "rms_norm_eps"}});
  if (!all.contains("num_key_value_heads"))
    all["num_key_value_heads"] = c.flag("multi_query_attention", false) ? Json(c.integer("multi_query_group_num", 1))
                                                                        : all["num_attention_heads"];
  const Config words(all);
  require(!c.flag("apply_residual_connection_post_layernorm", false) && c.flag("post_layer_norm", true) &&
              c.find("pre_seq_len") == nullptr,
          Fault::Model,
          "config.json: apply_residual_connection_post_layernorm, no post_layer_norm and pre_seq_len are not known in "
          "this family");
  DecoderSpec spec = read_decoder(words, {.positions = 8192, .eps = 1e-5, .rope = {.turned = 0.5}});
  spec.ropes[0].neighbours = true;
  spec.ropes[0].theta *= c.number("rope_ratio", 1);
  if (!c.flag("rmsnorm", true)) spec.norm.kind = NormKind::MeanAndBias;
  spec.backbone = "transformer", spec.embed_name = "embedding.word_embeddings", spec.layers_name = "encoder.layers";
  spec.final_norm = "encoder.final_layernorm", spec.head_name = "transformer.output_layer";
  spec.attention_name = "self_attention";
  const bool bias = c.flag("add_bias_linear", false);
  spec.attention = {.qkv_bias = bias || c.flag("add_qkv_bias", false),
                    .out_bias = bias,
                    .fused = Fused::Blocks,
                    .fused_name = "query_key_value",
                    .out_name = "dense"};
  use_kind(spec, FeedForwardKind::FusedGate, bias);
  use_names(spec, {.up = "dense_h_to_4h", .down = "dense_4h_to_h"});
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"chatglm3-6b", 4096, 28, 32, 2, 128, 13696, 65024, 8192, 1e4, false},
    {"glm-4-9b-original",
     4096,
     40,
     32,
     2,
     128,
     13696,
     151552,
     131072,
     1e4,
     false,
     {},
     {{"rope_ratio", 500}, {"rms_norm_eps", 1.5625e-7}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["add_qkv_bias"] = file.tensor("blk.0.attn_qkv.bias") != nullptr;
}

const GgufForm gguf = {.architecture = "chatglm",
                       .names = {{"transformer.embedding.word_embeddings", "token_embd"},
                                 {"transformer.encoder.final_layernorm", "output_norm"},
                                 {"transformer.output_layer", "output"},
                                 {"self_attention.query_key_value", "attn_qkv"},
                                 {"self_attention.dense", "attn_output"},
                                 {"mlp.dense_h_to_4h", "ffn_up"},
                                 {"mlp.dense_4h_to_h", "ffn_down"}},
                       .layers = "transformer.encoder.layers.",
                       .read = read_gguf,
                       .turns_in_part = true};

const RegisterFamily chatglm("chatglm", {.title = "ChatGLM 2 and 3, GLM-4-9B (2024)",
                                         .architecture = "ChatGLMModel",
                                         .read = read,
                                         .says = {{"add_qkv_bias", true}, {"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::chatglm
