// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX, Pythia, RedPajama, Dolly: attention and a plain feed-forward side by side, each behind a norm of its own;
// one matrix holds query, key and value of one head after the other; a quarter of each head turns.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gpt_neox {

namespace {
DecoderSpec read(const Config& c) {
  Json all = in_usual_words(c, {{"rotary_pct", "partial_rotary_factor"}, {"rotary_emb_base", "rope_theta"}});
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048, .rope = {.turned = 0.25}});
  spec.act = read_activation(c, "hidden_act", "gelu");
  spec.backbone = "gpt_neox", spec.embed_name = "embed_in", spec.final_norm = "final_layer_norm";
  spec.attention_name = "attention";
  spec.forms = {{.renames = {{"lm_head", "embed_out"}}}, {}};
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.parallel = c.flag("use_parallel_residual", true);
  const bool bias = c.flag("attention_bias", true);
  spec.attention = {
      .qkv_bias = bias, .out_bias = bias, .fused = Fused::Groups, .fused_name = "query_key_value", .out_name = "dense"};
  use_plain(spec, {.up = "dense_h_to_4h", .down = "dense_4h_to_h"}, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"pythia-160m", 768, 12, 12, 12, 0, 3072, 50304, 2048, 1e4, false},
    {"pythia-1.4b", 2048, 24, 16, 16, 0, 8192, 50304, 2048, 1e4, false},
    {"pythia-6.9b", 4096, 32, 32, 32, 0, 16384, 50432, 2048, 1e4, false},
    {"gpt-neox-20b", 6144, 44, 64, 64, 0, 24576, 50432, 2048, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "gptneox",
                       .names = {{"gpt_neox.embed_in", "token_embd"},
                                 {"gpt_neox.final_layer_norm", "output_norm"},
                                 {"embed_out", "output"},
                                 {"attention.query_key_value", "attn_qkv", {.rows = blocks_of_groups}},
                                 {"attention.dense", "attn_output"},
                                 {"mlp.dense_h_to_4h", "ffn_up"},
                                 {"mlp.dense_4h_to_h", "ffn_down"}},
                       .keys = {{"use_parallel_residual", "use_parallel_residual", GgufKey::Flag}},
                       .layers = "gpt_neox.layers.",
                       .eps = words::mean_eps("layer_norm_eps"),
                       .says = {{"hidden_act", "gelu"}, {"attention_bias", true}},
                       .turns_in_part = true};

const RegisterFamily gpt_neox(
    "gpt_neox", {.title = "GPT-NeoX, Pythia, Dolly 2",
                 .architecture = "GPTNeoXForCausalLM",
                 .read = read,
                 .says = {{"hidden_act", "gelu"}, {"layer_norm_eps", 1e-5}, {"partial_rotary_factor", 0.25}},
                 .presets = presets,
                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::gpt_neox
