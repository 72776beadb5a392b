// SPDX-License-Identifier: Apache-2.0
// LFM3: short convolutions between gates, attention whose heads have gates, in windows or as far as the text goes, each
// with rotary settings of its own; norms before and behind the branches.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::lfm3 {

namespace {
// conv, sliding_attention or full_attention of every layer; where the file has no list, of four layers two convolve.
std::vector<std::string> layer_types(const Config& c, int64_t layers) {
  std::vector<std::string> types = c.texts("layer_types");
  if (types.empty())
    for (int64_t i = 0; i < layers; ++i)
      types.emplace_back(i % 4 == 2 ? "full_attention" : i % 4 == 0 && i > 0 ? "sliding_attention" : "conv");
  require(std::ssize(types) == layers, Fault::Model, "config.json: layer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  for (const std::string& type : types)
    require(type == "conv" || type == "sliding_attention" || type == "full_attention", Fault::Model,
            "config.json: layer type '", type,
            "' is not known in this family; it has conv, sliding_attention and full_attention");
  return types;
}

// The angles of one kind of layer; where the file says nothing of it, the family's.
RopeSpec read_angles(const Config& c, const ModelShape& shape, RopeOf kind) {
  Json words = c.json();
  const bool full = kind == RopeOf::FullLayers;
  if (!c.find("rope_parameters") && !c.find("rope_scaling") && full)
    words["rope_parameters"] = {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}};
  return read_rope(Config(words), shape.head_dim, shape.max_positions, {.theta = 10000, .of = kind});
}

DecoderSpec read(const Config& c) {
  Json words = in_usual_words(c, {{"norm_eps", "rms_norm_eps"}});
  words["hidden_act"] = "silu";
  DecoderSpec spec = read_decoder(Config(words), {.kv_heads = 4,
                                                  .positions = 128000,
                                                  .ffn = 7680,
                                                  .head_dim = 128,
                                                  .tied = c.flag("tie_embedding", true),
                                                  .eps = 1e-5,
                                                  .rope = {.of = RopeOf::FullLayers}});
  const auto types = layer_types(c, spec.shape.layers);
  const int64_t window = c.json().contains("sliding_window") ? c.integer("sliding_window", 0) : 256;
  for (size_t i = 0; i < types.size(); ++i) spec.window[i] = types[i] == "sliding_attention" ? window : 0;
  spec.ropes = {read_angles(c, spec.shape, RopeOf::FullLayers)};
  turn_sliding_layers(spec, read_angles(c, spec.shape, RopeOf::SlidingLayers));
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  if (c.flag("use_attention_gate", true)) spec.attention.gate_name = "g_proj", spec.attention.gates_heads = true;
  if (c.flag("use_sandwich_norm", true))
    spec.norms.after_attention = "post_operator_norm", spec.norms.after_feed_forward = "post_ffn_norm";
  spec.final_norm = "embedding_norm", spec.dense_name = "feed_forward";
  use_states(
      c, spec,
      ConvForm{.width = spec.shape.hidden, .taps = c.integer("conv_L_cache", 7), .bias = c.flag("conv_bias", false)},
      [&](int64_t layer) { return types[static_cast<size_t>(layer)] == "conv" ? Keeps::State : Keeps::Tokens; });
  spec.forms = {{.inside = {{".input_layernorm.", ".operator_norm."},
                            {".post_attention_layernorm.", ".ffn_norm."},
                            {".feed_forward.gate_proj.", ".feed_forward.w1."},
                            {".feed_forward.up_proj.", ".feed_forward.w3."},
                            {".feed_forward.down_proj.", ".feed_forward.w2."},
                            {".self_attn.g_proj.", ".self_attn.gate_proj."}}}};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"lfm3-1.7b", 2048, 24, 16, 4, 128, 7680, 128000, 128000, 1e4, true},
};

const RegisterFamily lfm3("lfm3", {.title = "LFM3",
                                   .architecture = "Lfm3ForCausalLM",
                                   .read = read,
                                   .says = {{"conv_L_cache", 7},
                                            {"conv_bias", false},
                                            {"norm_eps", 1e-5},
                                            {"sliding_window", 256},
                                            {"use_sandwich_norm", true},
                                            {"use_attention_gate", true}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::lfm3
