// SPDX-License-Identifier: Apache-2.0
// Bamba: Mamba-2 layers, and attention in a few.
#include <algorithm>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::bamba {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 8, .positions = 262144, .ffn = 14336, .mlp_bias = true, .eps = 1e-5, .rope = {.turned = 0.5}});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.norms.before_feed_forward = "pre_ff_layernorm";
  spec.final_norm = "final_layernorm", spec.dense_name = "feed_forward";
  const auto attends = c.integers("attn_layer_indices");
  use_states(c, spec, read_mamba(c, {.inner = c.integer("mamba_expand", 2) * spec.shape.hidden}), [&](int64_t layer) {
    return std::find(attends.begin(), attends.end(), layer) != attends.end() ? Keeps::Tokens : Keeps::State;
  });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"bamba-9b", 4096, 32, 32, 8, 0, 14336, 128256, 262144, 1e4, false},
};

const RegisterFamily bamba("bamba", {.title = "Bamba",
                                     .architecture = "BambaForCausalLM",
                                     .read = read,
                                     .says = {{"attn_layer_indices", {9, 18, 27}},
                                              {"mamba_expand", 2},
                                              {"mamba_n_heads", 128},
                                              {"mamba_d_head", 64},
                                              {"mamba_n_groups", 1},
                                              {"mamba_d_state", 128},
                                              {"mamba_d_conv", 4},
                                              {"mamba_conv_bias", true},
                                              {"mamba_proj_bias", false},
                                              {"partial_rotary_factor", 0.5},
                                              {"rms_norm_eps", 1e-5}},
                                     .presets = presets});
}  // namespace

}  // namespace apus::families::bamba
