// SPDX-License-Identifier: Apache-2.0
// InternLM2 and 2.5, by the code that its files bring: one matrix holds queries, key and value of one key-value head
// after the other.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::internlm2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 32768});
  const bool bias = c.flag("bias", true);
  spec.embed_name = "tok_embeddings", spec.head_name = "output", spec.attention_name = "attention";
  spec.norms = {.before_attention = "attention_norm", .before_feed_forward = "ffn_norm"};
  spec.dense_name = "feed_forward";
  spec.attention = {.qkv_bias = bias, .out_bias = bias, .fused = Fused::Groups, .fused_name = "wqkv", .out_name = "wo"};
  use_names(spec, {.gate = "w1", .up = "w3", .down = "w2"});
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"internlm2-1.8b", 2048, 24, 16, 8, 0, 8192, 92544, 32768, 1e6, false},
    {"internlm2.5-7b", 4096, 32, 32, 8, 0, 14336, 92544, 32768, 1e6, false},
    {"internlm2.5-20b", 6144, 48, 48, 8, 0, 16384, 92544, 32768, 5e7, false},
};

// How it stands in GGUF files.
GgufTurn::Rows turning_queries(const GgufSizes& s, int64_t all) {
  return as_neighbours(queries_of_groups(s, all), s.heads);
}
GgufTurn::Rows turning_keys(const GgufSizes& s, int64_t all) {
  return as_neighbours(keys_of_groups(s, all), s.kv_heads);
}
void read_gguf(const GgufSays& file, Json& config) { config["bias"] = file.tensor("blk.0.attn_q.bias") != nullptr; }

const GgufForm gguf = {.architecture = "internlm2",
                       .names = {{"model.tok_embeddings", "token_embd"},
                                 {"output", "output"},
                                 {"attention_norm", "attn_norm"},
                                 {"ffn_norm", "ffn_norm"},
                                 {"attention.wqkv", "attn_q", {.rows = turning_queries}},
                                 {"attention.wqkv", "attn_k", {.rows = turning_keys}},
                                 {"attention.wqkv", "attn_v", {.rows = values_of_groups}},
                                 {"attention.wo", "attn_output"},
                                 {"feed_forward.w1", "ffn_gate"},
                                 {"feed_forward.w3", "ffn_up"},
                                 {"feed_forward.w2", "ffn_down"}},
                       .read = read_gguf};

const RegisterFamily internlm2("internlm2", {.title = "InternLM 2 and 2.5",
                                             .architecture = "InternLM2ForCausalLM",
                                             .read = read,
                                             .says = {{"bias", false}, {"rms_norm_eps", 1e-5}},
                                             .presets = presets,
                                             .gguf = gguf});
}  // namespace

}  // namespace apus::families::internlm2
