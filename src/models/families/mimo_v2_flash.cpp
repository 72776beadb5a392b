// SPDX-License-Identifier: Apache-2.0
// MiMo-V2-Flash: sliding layers with sinks and twice the key-value heads; values are smaller than keys; experts by
// sigmoids with a correction.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::mimo_v2_flash {

namespace {
DecoderSpec read(const Config& c) {
  Json json = c.json();
  if (c.find("layernorm_epsilon") && !c.find("rms_norm_eps")) json["rms_norm_eps"] = json["layernorm_epsilon"];
  if (const auto slides = c.integers("hybrid_layer_pattern"); !slides.empty() && !c.find("layer_types"))
    for (const int64_t each : slides) json["layer_types"].push_back(each == 1 ? "sliding_attention" : "full_attention");
  if (const auto sparse = c.integers("moe_layer_freq"); !sparse.empty() && !c.find("mlp_layer_types"))
    for (const int64_t each : sparse) json["mlp_layer_types"].push_back(each == 1 ? "sparse" : "dense");
  if (const int64_t before = c.integer("sliding_window_size", 0); before > 0) json["sliding_window"] = before + 1;
  const Config own(json);
  const double kTurned = 0.334;
  DecoderSpec spec = read_decoder(own, {.kv_heads = 4,
                                        .positions = 131072,
                                        .ffn = 16384,
                                        .head_dim = 192,
                                        .eps = 1e-5,
                                        .rope = {.theta = 5e6, .turned = kTurned, .of = RopeOf::FullLayers}});
  const int64_t kWindow = 129;
  spec.window = read_windows(
      own, spec.shape.layers, [](int64_t layer) { return layer > 0 && (layer + 1) % 6 != 0; }, kWindow);
  json["rope_theta"] = c.number("swa_rope_theta", 1e4);
  turn_sliding_layers(spec, read_rope(own, spec.shape.head_dim, spec.shape.max_positions,
                                      {.theta = 1e4, .turned = kTurned, .of = RopeOf::SlidingLayers}));
  spec.attention.qkv_bias = c.flag("attention_bias", false);
  spec.attention.value_dim = c.integer("v_head_dim", 128),
  spec.attention.value_scale =
      c.number("attention_value_scale", c.json().contains("attention_value_scale") ? 1 : 0.707);
  const int64_t full = spec.shape.kv_heads, sliding = c.integer("swa_num_key_value_heads", 2 * full);
  require(spec.attention.value_dim > 0 && spec.attention.value_dim <= spec.shape.head_dim && sliding % full == 0 &&
              spec.shape.heads % sliding == 0,
          Fault::Model, "config.json: v_head_dim must not be above head_dim, and heads a multiple of key-value heads");
  for (const int64_t window : spec.window)
    spec.heads_of.push_back({spec.shape.heads, window > 0 ? sliding : full, window > 0});
  use_experts(own, spec,
              {.experts = c.integer("n_routed_experts", 256),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = c.integer("moe_intermediate_size", 2048),
               .router = read_sigmoid_router(c, 1),
               .names = {.correction = "gate.e_score_correction_bias"}},
              sparse_layers(own, spec.shape.layers, 1));
  spec.forms = {{.inside = {{"self_attn.sinks", "self_attn.attention_sink_bias"}}}};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mimo-v2-flash", 4096, 48, 64, 4, 192, 16384, 152576, 262144, 5e6, false},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["v_head_dim"] = file.integer("attention.value_length").value_or(config["head_dim"].get<int64_t>());
  config["attention_value_scale"] = file.number("attention.value_scale").value_or(1);
  words::read_windows_of_layers(file, config);
  words::read_turns_of_layers(file, config);
  const auto heads = file.integers("attention.head_count_kv"), slides = file.integers(words::kWindowsOfLayers);
  Json feeds = Json::array();
  for (const bool sparse : file.layers_with("ffn_gate_inp.weight")) feeds.push_back(sparse ? "sparse" : "dense");
  config["mlp_layer_types"] = std::move(feeds);
  for (size_t i = 0; i < heads.size() && i < slides.size(); ++i)
    config[slides[i] != 0 ? "swa_num_key_value_heads" : "num_key_value_heads"] = heads[i];
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const DecoderSpec spec = read(Config(config));
  GgufValue::Integers heads, slides;
  for (size_t i = 0; i < spec.heads_of.size(); ++i) {
    heads.push_back(spec.heads_of[i].kv_heads);
    slides.push_back(spec.window[i] > 0 ? 1 : 0);
  }
  out.own("attention.head_count_kv", GgufValue::list(GgufKind::I32, std::move(heads)));
  out.own(words::kWindowsOfLayers, GgufValue::list(GgufKind::I32, std::move(slides)));
  out.number("rope.freq_base_swa", spec.ropes.back().theta);
  if (spec.attention.value_scale != 1) out.number("attention.value_scale", spec.attention.value_scale);
}

const GgufForm gguf = {
    .architecture = "mimo2",
    .names = {{"self_attn.attention_sink_bias", "attn_sinks.weight"}},
    .keys =
        words::both(words::experts("n_routed_experts"),
                    {{"n_group", "expert_group_count"}, {"topk_group", "expert_group_used_count"}, words::window()}),
    .says = {{"norm_topk_prob", true}, {"routed_scaling_factor", 1.0}},
    .read = read_gguf,
    .write = write_gguf,
    .turns_in_part = true};

const RegisterFamily mimo_v2_flash("mimo_v2_flash", {.title = "MiMo-V2-Flash",
                                                     .architecture = "MiMoV2FlashForCausalLM",
                                                     .read = read,
                                                     .says = {{"v_head_dim", 128},
                                                              {"attention_value_scale", 0.707},
                                                              {"partial_rotary_factor", 0.334},
                                                              {"swa_rope_theta", 10000.0},
                                                              {"n_routed_experts", 256},
                                                              {"num_experts_per_tok", 8},
                                                              {"moe_intermediate_size", 2048},
                                                              {"n_group", 1},
                                                              {"topk_group", 1},
                                                              {"norm_topk_prob", true},
                                                              {"sliding_window", 129},
                                                              {"rms_norm_eps", 1e-5}},
                                                     .presets = presets,
                                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::mimo_v2_flash
