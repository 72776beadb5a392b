// SPDX-License-Identifier: Apache-2.0
// Hunyuan 3: normalised heads; experts by sigmoids with a correction, and a shared feed-forward.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::hy_v3 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 8, .positions = 131072, .ffn = 13312, .head_dim = 128, .eps = 1e-5, .rope = {.theta = 11158840}});
  require(!c.flag("mlp_bias", false), Fault::Model, "config.json: mlp_bias is not supported with experts");
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const int64_t width = c.integer("moe_intermediate_size", 1536);
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 192),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = width,
               .shared_ffn = width * c.integer("num_shared_experts", 1),
               .router = {.sigmoid = true, .normalise = true, .scale = c.number("router_scaling_factor", 2.826)},
               .names = {.router = "router.gate",
                         .correction = "expert_bias",
                         .shared = "shared_mlp",
                         .shared_is_gated = false}},
              sparse_layers(c, spec.shape.layers, 1));
  spec.shape.unread_layers = c.integer("num_nextn_predict_layers", 0);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"hunyuan3", 4096, 80, 64, 8, 128, 13312, 120832, 131072, 11158840, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "hy_v3",
                       .names = words::both(words::shared_experts("mlp.shared_mlp"),
                                            {{"mlp.router.gate", "ffn_gate_inp"}, {"mlp.expert_bias", "exp_probs_b"}}),
                       .keys = words::both(words::experts("num_experts"),
                                           {{"num_shared_experts", "expert_shared_count"},
                                            {"first_k_dense_replace", "leading_dense_block_count"},
                                            {"router_scaling_factor", "expert_weights_scale", GgufKey::Number},
                                            {"route_norm", "expert_weights_norm", GgufKey::Flag}})};

const RegisterFamily hy_v3("hy_v3", {.title = "Hunyuan 3",
                                     .architecture = "HYV3ForCausalLM",
                                     .read = read,
                                     .says = {{"num_experts", 192},
                                              {"num_shared_experts", 1},
                                              {"num_experts_per_tok", 8},
                                              {"moe_intermediate_size", 1536},
                                              {"first_k_dense_replace", 1},
                                              {"router_scaling_factor", 2.826},
                                              {"rms_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::hy_v3
