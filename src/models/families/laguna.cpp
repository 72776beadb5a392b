// SPDX-License-Identifier: Apache-2.0
// Laguna: gates by softplus for each head, layers with heads of their own number, other rotary settings where layers
// slide; experts by sigmoids with a correction and a shared one.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8,
                                      .positions = 131072,
                                      .ffn = 8192,
                                      .head_dim = 128,
                                      .rope = {.theta = 5e5, .turned = 0.5, .of = RopeOf::FullLayers}});
  const int64_t kWindow = 512;
  spec.window = read_windows(
      c, spec.shape.layers, [](int64_t) { return false; }, kWindow);
  Json sliding = c.json();
  if (!c.find("rope_parameters")) sliding.erase("rope_theta"), sliding.erase("partial_rotary_factor");
  turn_sliding_layers(spec, read_rope(Config(sliding), spec.shape.head_dim, spec.shape.max_positions,
                                      {.theta = 1e4, .of = RopeOf::SlidingLayers}));
  const Json* gating = c.find("gating");
  const bool by_head = !gating || *gating == true || *gating == "per-head";
  spec.attention = {.qk_norm = QkNorm::Head, .gate_name = "g_proj", .gates_heads = by_head, .gates_by_softplus = true};
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  if (const auto heads = c.integers("num_attention_heads_per_layer"); !heads.empty()) {
    require(std::ssize(heads) == spec.shape.layers, Fault::Model, "config.json: num_attention_heads_per_layer has ",
            heads.size(), " entries, the model ", spec.shape.layers, " layers");
    for (const int64_t each : heads) {
      require(each > 0 && each % spec.shape.kv_heads == 0, Fault::Model, "config.json: ", each,
              " heads of a layer must be a multiple of num_key_value_heads ", spec.shape.kv_heads);
      spec.heads_of.push_back({each, spec.shape.kv_heads, false});
    }
  }
  require(!c.flag("moe_apply_router_weight_on_input", false) && c.number("moe_router_logit_softcapping", 0) == 0,
          Fault::Model,
          "config.json: moe_apply_router_weight_on_input and moe_router_logit_softcapping are not supported");
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 256),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = c.integer("moe_intermediate_size", 512),
               .shared_ffn = c.integer("shared_expert_intermediate_size", 512),
               .router = {.sigmoid = true, .normalise = true, .scale = c.number("moe_routed_scaling_factor", 1)},
               .names = {.correction = "experts.e_score_correction_bias", .shared_is_gated = false}},
              sparse_layers(c, spec.shape.layers, 1));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"laguna", 2048, 40, 48, 8, 128, 8192, 100352, 131072, 5e5, false},
};

const RegisterFamily laguna("laguna", {.title = "Laguna",
                                       .architecture = "LagunaForCausalLM",
                                       .read = read,
                                       .says = {{"num_experts", 256},
                                                {"num_experts_per_tok", 8},
                                                {"moe_intermediate_size", 512},
                                                {"shared_expert_intermediate_size", 512},
                                                {"partial_rotary_factor", 0.5},
                                                {"moe_routed_scaling_factor", 1.0},
                                                {"sliding_window", 512},
                                                {"gating", true}},
                                       .presets = presets});
}  // namespace

}  // namespace apus
