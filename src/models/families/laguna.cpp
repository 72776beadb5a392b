// SPDX-License-Identifier: Apache-2.0
// Laguna: gates by softplus for each head, layers with heads of their own number, other rotary settings where layers
// slide; experts by sigmoids with a correction and a shared one.
#include <algorithm>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::laguna {

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

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  if (const auto heads = file.integers("attention.head_count"); std::ssize(heads) == layers) {
    config["num_attention_heads_per_layer"] = heads;
    config["num_attention_heads"] = heads.at(0);
  }
  words::read_turns_of_layers(file, config);
  // All but every fourth layer slide, where there is a window.
  const bool slides = file.integer("attention.sliding_window").value_or(0) > 0;
  config["layer_types"] = words::layer_types(layers, [&](int64_t i) { return slides && i % 4 != 0; });
  words::read_windows_of_layers(file, config);
  const GgufTensor* gate = file.tensor("blk.0.attn_gate.weight");
  const bool by_head = gate && gate->shape.at(0) == config["num_attention_heads"];
  config["gating"] = by_head ? "per-head" : "per-element";
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const DecoderSpec spec = read(Config(config));
  GgufValue::Integers heads(static_cast<size_t>(spec.shape.layers), spec.shape.heads);
  for (size_t i = 0; i < spec.heads_of.size(); ++i) heads[i] = spec.heads_of[i].heads;
  out.own("attention.head_count", GgufValue::list(GgufKind::I32, std::move(heads)));
  out.own("expert_weights_norm", GgufValue::flag(true));
  out.whole("vocab_size", spec.shape.vocab);
  out.whole("rope.dimension_count", spec.ropes[0].dim);
  if (std::none_of(spec.window.begin(), spec.window.end(), [](int64_t w) { return w > 0; })) return;
  out.number("rope.freq_base_swa", spec.ropes.back().theta);
  out.whole("rope.dimension_count_swa", spec.ropes.back().dim);
}

const GgufForm gguf = {
    .architecture = "laguna",
    .names = {{"self_attn.g_proj", "attn_gate"}, {"mlp.experts.e_score_correction_bias", "exp_probs_b.bias"}},
    .keys = words::both(words::experts("num_experts"),
                        {{"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
                         {"first_k_dense_replace", "leading_dense_block_count"},
                         {"moe_routed_scaling_factor", "expert_weights_scale", GgufKey::Number},
                         words::window()}),
    .read = read_gguf,
    .write = write_gguf,
    .turns_in_part = true};

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
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::laguna
