// SPDX-License-Identifier: Apache-2.0
// GPT-2 and its like: positions are looked up in a table; matrices stand turned in the file.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus::families::gpt2 {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = gpt_words(c);
  DecoderSpec spec = read_decoder(Config(all), {.positions = 1024, .tied = true});
  require(!c.flag("scale_attn_by_inverse_layer_idx", false) && !c.flag("add_cross_attention", false), Fault::Model,
          "config.json: scale_attn_by_inverse_layer_idx and add_cross_attention are not known in this family");
  use_gpt_names(Config(all), spec, "gelu_new");
  use_gpt_positions(spec, "wpe");
  spec.attention = {.qkv_bias = true,
                    .out_bias = true,
                    .fused = Fused::Blocks,
                    .fused_name = "c_attn",
                    .out_name = "c_proj",
                    .scale = c.flag("scale_attn_weights", true) ? 0.0 : 1.0};
  use_plain(spec, {}, true);
  spec.forms = {{.renames = {},
                 .transposed = {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"}}};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gpt2-124m", 768, 12, 12, 12, 0, 3072, 50257, 1024, 1e4, true},
    {"gpt2-medium", 1024, 24, 16, 16, 0, 4096, 50257, 1024, 1e4, true},
    {"gpt2-large", 1280, 36, 20, 20, 0, 5120, 50257, 1024, 1e4, true},
    {"gpt2-xl", 1600, 48, 25, 25, 0, 6400, 50257, 1024, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "gpt2",
                       .names = {{"transformer.wte", "token_embd"},
                                 {"transformer.wpe", "position_embd"},
                                 {"transformer.ln_f", "output_norm"},
                                 {"ln_1", "attn_norm"},
                                 {"ln_2", "ffn_norm"},
                                 {"attn.c_attn", "attn_qkv", {.turned = true}},
                                 {"attn.c_proj", "attn_output", {.turned = true}},
                                 {"mlp.c_fc", "ffn_up", {.turned = true}},
                                 {"mlp.c_proj", "ffn_down", {.turned = true}}},
                       .layers = "transformer.h.",
                       .eps = words::mean_eps("layer_norm_epsilon"),
                       .says = {{"hidden_act", "gelu_new"}}};

const RegisterFamily gpt2("gpt2", {.title = "GPT-2",
                                   .architecture = "GPT2LMHeadModel",
                                   .read = read,
                                   .says = {{"hidden_act", "gelu_new"}},
                                   .presets = presets,
                                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::gpt2
