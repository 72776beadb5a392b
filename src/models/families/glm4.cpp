// SPDX-License-Identifier: Apache-2.0
// GLM-4 (0414): norms before and after each branch under names of its own, gate and up in one matrix, half of each head
// turned, neighbours together.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::glm4 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 2, .positions = 131072, .head_dim = 128, .eps = 1.5625e-7, .rope = {.turned = 0.5}});
  spec.norms = {.after_attention = "post_self_attn_layernorm",
                .before_feed_forward = "post_attention_layernorm",
                .after_feed_forward = "post_mlp_layernorm"};
  spec.attention.qkv_bias = c.flag("attention_bias", true);
  spec.ropes[0].neighbours = true;
  use_kind(spec, FeedForwardKind::FusedGate);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm4-9b", 4096, 40, 32, 2, 128, 13696, 151552, 32768, 1e4, false},
    {"glm4-32b", 6144, 61, 48, 8, 128, 23040, 151552, 32768, 1e4, false, {}, {{"attention_bias", false}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "glm4",
                       .names = {{"post_self_attn_layernorm", "post_attention_norm"},
                                 {"post_attention_layernorm", "ffn_norm"},
                                 {"post_mlp_layernorm", "post_ffw_norm"},
                                 {"mlp.gate_up_proj", "ffn_up"}},
                       .turns_in_part = true};

const RegisterFamily glm4("glm4",
                          {.title = "GLM-4 (0414) and GLM-Z1",
                           .architecture = "Glm4ForCausalLM",
                           .read = read,
                           .says = {{"attention_bias", true}, {"partial_rotary_factor", 0.5}, {"rms_norm_eps", 1e-5}},
                           .presets = presets,
                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::glm4
