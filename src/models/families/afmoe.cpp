// SPDX-License-Identifier: Apache-2.0
// Trinity (AFMoE): norms before and after each branch, gated attention, full layers that are not told positions;
// experts by sigmoids with a correction, and shared ones beside them.
#include <cmath>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::afmoe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 16384, .ffn = 6144, .head_dim = 128, .eps = 1e-5});
  spec.norms = {.after_attention = "post_attention_layernorm",
                .before_feed_forward = "pre_mlp_layernorm",
                .after_feed_forward = "post_mlp_layernorm"};
  spec.attention = {.qk_norm = QkNorm::Head, .gate_name = "gate_proj"};
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const int64_t kWindow = 1024, every = c.integer("global_attn_every_n_layers", 4);
  require(every > 0, Fault::Model, "config.json: global_attn_every_n_layers must be above 0");
  spec.window = read_windows(c, spec.shape.layers, all_but_every(every), kWindow);
  turn_only(spec, [&](size_t i) { return spec.window[i] > 0; });
  if (c.flag("mup_enabled", false)) spec.embedding_scale = std::sqrt(static_cast<double>(spec.shape.hidden));
  const int64_t width = c.integer("moe_intermediate_size", 1408), dense = c.integer("num_dense_layers", 1);
  const auto scores = c.text("score_func", "sigmoid");
  require(scores == "sigmoid", Fault::Model, "config.json: score_func '", scores,
          "' is not known in this family, only sigmoid");
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 64),
               .per_token = c.integer("num_experts_per_tok", 6),
               .ffn = width,
               .shared_ffn = width * c.integer("num_shared_experts", 2),
               .router = {.sigmoid = true,
                          .normalise = c.flag("route_norm", true),
                          .scale = c.number("route_scale", 1),
                          .groups = c.integer("n_group", 1),
                          .open_groups = c.integer("topk_group", 1)},
               .names = {.router = "router.gate",
                         .correction = "expert_bias",
                         .shared = "shared_experts",
                         .shared_is_gated = false}},
              [&](int64_t layer) { return layer >= dense; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"trinity-mini", 2048, 32, 32, 4, 128, 6144, 200192, 131072, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "afmoe",
    .names = words::both(words::shared_experts(), {{"post_attention_layernorm", "post_attention_norm"},
                                                   {"pre_mlp_layernorm", "ffn_norm"},
                                                   {"post_mlp_layernorm", "post_ffw_norm"},
                                                   {"self_attn.gate_proj", "attn_gate"},
                                                   {"mlp.router.gate", "ffn_gate_inp"},
                                                   {"mlp.expert_bias", "exp_probs_b.bias"}}),
    .keys = words::both(words::experts("num_experts"), {{"num_shared_experts", "expert_shared_count"},
                                                        {"num_dense_layers", "leading_dense_block_count"},
                                                        {"route_scale", "expert_weights_scale", GgufKey::Number},
                                                        {"route_norm", "expert_weights_norm", GgufKey::Flag},
                                                        words::window()}),
    .says = {{"mup_enabled", true}, {"global_attn_every_n_layers", 4}}};

const RegisterFamily afmoe("afmoe", {.title = "Trinity",
                                     .architecture = "AfmoeForCausalLM",
                                     .read = read,
                                     .says = {{"num_experts", 128},
                                              {"num_shared_experts", 1},
                                              {"num_experts_per_tok", 8},
                                              {"moe_intermediate_size", 1024},
                                              {"num_dense_layers", 2},
                                              {"route_scale", 2.826},
                                              {"mup_enabled", true},
                                              {"sliding_window", 2048},
                                              {"global_attn_every_n_layers", 4},
                                              {"rms_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::afmoe
