// SPDX-License-Identifier: Apache-2.0
// EXAONE 3.0, 3.5 and Deep: Llama under GPT-2's names.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::exaone {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = in_usual_words(c, {{"num_layers", "num_hidden_layers"},
                                      {"layer_norm_epsilon", "rms_norm_eps"},
                                      {"activation_function", "hidden_act"}});
  const bool bias = c.flag("attention_bias", false);
  DecoderSpec spec = read_decoder(
      Config(all),
      {.kv_heads = 8, .positions = 4096, .ffn = 14336, .mlp_bias = true, .eps = 1e-5, .rope = {.theta = 500000}});
  spec.backbone = "transformer", spec.layers_name = "h", spec.embed_name = "wte", spec.final_norm = "ln_f";
  spec.norms = {.before_attention = "ln_1", .before_feed_forward = "ln_2"};
  spec.attention_name = "attn.attention";
  spec.attention = {.qkv_bias = bias, .out_bias = bias, .out_name = "out_proj"};
  use_names(spec, {.gate = "c_fc_0", .up = "c_fc_1", .down = "c_proj"});
  return spec;
}

// name              hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"exaone3.5-2.4b", 2560, 30, 32, 8, 80, 7168, 102400, 32768, 1e6, true},
    {"exaone3.5-7.8b", 4096, 32, 32, 8, 128, 14336, 102400, 32768, 1e6, false},
    {"exaone3.5-32b", 5120, 64, 40, 8, 128, 27392, 102400, 32768, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "exaone",
                       .names = {{"transformer.wte", "token_embd"},
                                 {"transformer.ln_f", "output_norm"},
                                 {"ln_1", "attn_norm"},
                                 {"ln_2", "ffn_norm"},
                                 {"attn.attention.q_proj", "attn_q"},
                                 {"attn.attention.k_proj", "attn_k"},
                                 {"attn.attention.v_proj", "attn_v"},
                                 {"attn.attention.out_proj", "attn_output"},
                                 {"mlp.c_fc_0", "ffn_gate"},
                                 {"mlp.c_fc_1", "ffn_up"},
                                 {"mlp.c_proj", "ffn_down"}},
                       .layers = "transformer.h."};

const RegisterFamily exaone("exaone", {.title = "EXAONE 3.0, 3.5 and Deep",
                                       .architecture = "ExaoneForCausalLM",
                                       .read = read,
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::exaone
