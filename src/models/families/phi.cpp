// SPDX-License-Identifier: Apache-2.0
// Phi-1, 1.5 and 2: attention and a plain feed-forward side by side, biases everywhere, of the head too; a part of each
// head turned.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::phi {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .rope = {.turned = 0.5}});
  spec.act = read_activation(c, "hidden_act", "gelu_new");
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.norms.before_feed_forward = "", spec.final_norm = "final_layernorm";
  spec.parallel = spec.head_bias = true;
  spec.attention.qkv_bias = spec.attention.out_bias = true;
  spec.attention.out_name = "dense";
  if (c.flag("qk_layernorm", false)) spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qk_norm_ending = "_layernorm";
  use_plain(spec, {.up = "fc1", .down = "fc2"}, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"phi-1.5", 2048, 24, 32, 32, 0, 8192, 51200, 2048, 1e4, false},
    {"phi-2", 2560, 32, 32, 32, 0, 10240, 51200, 2048, 1e4, false, {}, {{"partial_rotary_factor", 0.4}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["qk_layernorm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
}

const GgufForm gguf = {.architecture = "phi2",
                       .names = {{"model.final_layernorm", "output_norm"},
                                 {"self_attn.dense", "attn_output"},
                                 {"self_attn.q_layernorm", "attn_q_norm"},
                                 {"self_attn.k_layernorm", "attn_k_norm"},
                                 {"mlp.fc1", "ffn_up"},
                                 {"mlp.fc2", "ffn_down"}},
                       .eps = words::mean_eps("layer_norm_eps"),
                       .says = {{"hidden_act", "gelu_new"}},
                       .read = read_gguf,
                       .turns_in_part = true};

const RegisterFamily phi(
    "phi", {.title = "Phi-1, 1.5 and 2",
            .architecture = "PhiForCausalLM",
            .read = read,
            .says = {{"hidden_act", "gelu_new"}, {"layer_norm_eps", 1e-5}, {"partial_rotary_factor", 0.5}},
            .presets = presets,
            .gguf = gguf});
}  // namespace

}  // namespace apus::families::phi
