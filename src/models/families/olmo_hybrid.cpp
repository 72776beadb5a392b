// SPDX-License-Identifier: Apache-2.0
// OLMo Hybrid: gated delta nets behind norms, and attention in a few layers, whose norms stand behind it.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::olmo_hybrid {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 65536, .ffn = 11008});
  norms_after_branches(spec);
  spec.state_norms = LayerNorms{};
  spec.attention.qk_norm = QkNorm::AllHeads;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  if (!c.find("rope_parameters") && !c.find("rope_scaling") && !c.find("rope_theta"))
    turn_only(spec, [](size_t) { return false; });
  const int64_t heads = c.integer("linear_num_key_heads", spec.shape.heads);
  require(heads > 0, Fault::Model, "config.json: linear_num_key_heads must be above 0");
  const int64_t key_dim = c.integer("linear_key_head_dim", 3 * spec.shape.hidden / (4 * heads));
  use_states(c, spec,
             DeltaForm{.key_heads = heads,
                       .value_heads = c.integer("linear_num_value_heads", spec.shape.heads),
                       .key_dim = key_dim,
                       .value_dim = c.integer("linear_value_head_dim", 2 * key_dim),
                       .taps = c.integer("linear_conv_kernel_dim", 4),
                       .all_apart = true,
                       .share_scale = c.flag("linear_allow_neg_eigval", true) ? 2.0 : 1.0},
             read_layer_types(c, spec.shape.layers,
                              [](int64_t layer) { return layer % 4 == 3 ? Keeps::Tokens : Keeps::State; }));
  spec.forms = {{.inside = {{".input_layernorm.", ".attention_layer_norm."},
                            {".post_attention_layernorm.", ".feedforward_layer_norm."}}}};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"olmo-hybrid-7b", 3840, 32, 30, 30, 0, 11008, 100352, 65536, 5e5, false},
};

const RegisterFamily olmo_hybrid("olmo_hybrid", {.title = "OLMo Hybrid",
                                                 .architecture = "OlmoHybridForCausalLM",
                                                 .read = read,
                                                 .says = {{"linear_num_key_heads", 30},
                                                          {"linear_num_value_heads", 30},
                                                          {"linear_key_head_dim", 96},
                                                          {"linear_value_head_dim", 192},
                                                          {"linear_conv_kernel_dim", 4},
                                                          {"linear_allow_neg_eigval", true}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::olmo_hybrid
