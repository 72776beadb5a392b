// SPDX-License-Identifier: Apache-2.0
// StarCoder 1, SantaCoder: GPT-2 whose heads share one key and value.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus::families::gpt_bigcode {

namespace {
DecoderSpec read(const Config& c) {
  Json all = gpt_words(c);
  const bool shared = c.flag("multi_query", true);
  all["num_key_value_heads"] = shared ? Json(1) : all["num_attention_heads"];
  DecoderSpec spec = read_decoder(Config(all), {.positions = 1024, .tied = true});
  require(!c.flag("add_cross_attention", false), Fault::Model,
          "config.json: add_cross_attention is not known in this family");
  use_gpt_names(Config(all), spec, "gelu_pytorch_tanh");
  use_gpt_positions(spec, "wpe");
  spec.attention = {.qkv_bias = true,
                    .out_bias = true,
                    .fused = Fused::Groups,
                    .fused_name = "c_attn",
                    .out_name = "c_proj",
                    .scale = c.flag("scale_attn_weights", true) ? 0.0 : 1.0};
  use_plain(spec, {}, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"tiny-starcoder", 768, 20, 12, 1, 0, 3072, 49152, 8192, 1e4, true},
    {"starcoder-1b", 2048, 24, 16, 1, 0, 8192, 49152, 8192, 1e4, true},
    {"starcoder-15b", 6144, 40, 48, 1, 0, 24576, 49152, 8192, 1e4, true},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays&, Json& config) { config["multi_query"] = config["num_key_value_heads"] == 1; }

const GgufForm gguf = {.architecture = "starcoder",
                       .names = {{"transformer.wte", "token_embd"},
                                 {"transformer.wpe", "position_embd"},
                                 {"transformer.ln_f", "output_norm"},
                                 {"ln_1", "attn_norm"},
                                 {"ln_2", "ffn_norm"},
                                 {"attn.c_attn", "attn_qkv", {.rows = blocks_of_groups}},
                                 {"attn.c_proj", "attn_output"},
                                 {"mlp.c_fc", "ffn_up"},
                                 {"mlp.c_proj", "ffn_down"}},
                       .layers = "transformer.h.",
                       .eps = words::mean_eps("layer_norm_epsilon"),
                       .says = {{"hidden_act", "gelu_pytorch_tanh"}},
                       .read = read_gguf};

const RegisterFamily gpt_bigcode("gpt_bigcode", {.title = "StarCoder 1, SantaCoder",
                                                 .architecture = "GPTBigCodeForCausalLM",
                                                 .read = read,
                                                 .says = {{"multi_query", true}, {"hidden_act", "gelu_pytorch_tanh"}},
                                                 .presets = presets,
                                                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::gpt_bigcode
