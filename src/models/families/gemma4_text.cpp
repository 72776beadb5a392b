// SPDX-License-Identifier: Apache-2.0
// Gemma 4 (text): sliding layers and full ones with larger heads, whose keys are their values too. The small models
// give each layer numbers of its own and let the last ones read keys and values of earlier ones; one has experts beside
// the feed-forward.

#include "base/error.h"
#include "models/families/gemma2.h"
#include "models/families/gemma4.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gemma4_text {

namespace {
// A full layer's heads: global_head_dim and num_global_key_value_heads, or what per_layer_config says of each layer.
LayerHeads full_heads(const Config& c, const ModelShape& shape, int64_t layer) {
  const bool one_for_both = c.flag("attention_k_eq_v", false);
  LayerHeads heads{shape.heads, shape.kv_heads, false};
  heads.one_for_both = one_for_both;
  heads.head_dim = c.integer("global_head_dim", 512);
  if (one_for_both) heads.kv_heads = c.integer("num_global_key_value_heads", shape.kv_heads);
  const Json* each = c.find("per_layer_config");
  const std::string number = std::to_string(layer);
  if (!each || !each->is_object() || !each->contains(number)) return heads;
  const Config own((*each)[number]);
  heads.head_dim = own.integer("head_dim", shape.head_dim);
  heads.kv_heads = own.integer("num_key_value_heads", shape.kv_heads);
  return heads;
}

void read_heads(const Config& c, DecoderSpec& spec) {
  for (int64_t i = 0; i < spec.shape.layers; ++i) {
    const bool slides = spec.window[static_cast<size_t>(i)] > 0;
    spec.heads_of.push_back(slides ? LayerHeads{spec.shape.heads, spec.shape.kv_heads, false}
                                   : full_heads(c, spec.shape, i));
    const LayerHeads heads = spec.heads_in(i);
    require(heads.kv_heads > 0 && heads.heads % heads.kv_heads == 0 && heads.head_dim > 0, Fault::Model,
            "config.json: ", heads.kv_heads, " key-value heads of ", heads.head_dim, " numbers in layer ", i,
            " do not fit ", heads.heads, " heads");
  }
}

void share_keys(const Config& c, DecoderSpec& spec) {
  share_last_keys(c, spec, 0);
  if (!c.flag("use_double_wide_mlp", false)) return;
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    if (spec.heads_in(i).borrows >= 0) std::get<DenseSpec>(spec.feed_forward[static_cast<size_t>(i)]).ffn *= 2;
}

void read_experts(const Config& c, DecoderSpec& spec) {
  if (!c.flag("enable_moe_block", false)) return;
  const DenseSpec beside = std::get<DenseSpec>(spec.feed_forward[0]);
  use_experts(c, spec,
              {.experts = c.integer("num_experts"),
               .per_token = c.integer("top_k_experts"),
               .ffn = c.integer("moe_intermediate_size"),
               .router = {.normalise = true, .own_numbers = true},
               .names = {.block = "",
                         .router = "router.proj",
                         .stacked_gate_up = "experts.gate_up_proj",
                         .stacked_down = "experts.down_proj"},
               .beside = beside},
              [](int64_t) { return true; });
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4,
                                      .positions = 131072,
                                      .ffn = 9216,
                                      .head_dim = 256,
                                      .tied = true,
                                      .rope = {.theta = 1e4, .of = RopeOf::SlidingLayers}});
  const ModelShape& shape = spec.shape;
  const std::string ahead = c.text("use_bidirectional_attention", "");
  require(ahead.empty() || ahead == "vision", Fault::Model, "config.json: use_bidirectional_attention '", ahead,
          "' is not supported, only 'vision' and null");
  gemma2::use_layers(c, spec);
  const bool bias = c.flag("attention_bias", false);
  spec.attention = {.qkv_bias = bias, .out_bias = bias, .qk_norm = QkNorm::Head, .scale = 1, .value_norm = true};
  spec.window = read_windows(c, shape.layers, all_but_every(6), 512);
  spec.window.back() = 0;  // whatever the file says
  read_heads(c, spec);
  read_experts(c, spec);
  share_keys(c, spec);
  spec.ropes.push_back(read_rope(c, spec.heads_of.back().head_dim, shape.max_positions,
                                 {.theta = 1e6, .turned = 0.25, .of = RopeOf::FullLayers}));
  for (size_t i = 0; i < spec.window.size(); ++i) spec.rope_of[i] = spec.window[i] > 0 ? 0 : 1;
  if (const int64_t width = c.integer("hidden_size_per_layer_input", 256); width > 0) {
    spec.layer_inputs = {.width = width,
                         .words = c.integer("vocab_size_per_layer_input", 262144),
                         .media_word = c.integer("pad_token_id", 0)};
    require(spec.layer_inputs->words >= shape.vocab, Fault::Model, "config.json: vocab_size_per_layer_input ",
            spec.layer_inputs->words, " is below vocab_size ", shape.vocab);
  }
  spec.scaled_layers = true;
  spec.logit_softcap = read_softcap(c, "final_logit_softcapping", 0);
  return spec;
}
}  // namespace

}  // namespace apus::families::gemma4_text

namespace apus::families::gemma4 {
Json small_says(int64_t shared_layers, bool wide) {
  return {{"num_kv_shared_layers", shared_layers},
          {"use_double_wide_mlp", wide},
          {"hidden_size_per_layer_input", 256},
          {"attention_k_eq_v", false},
          {"sliding_window", 512}};
}
Json large_says(int64_t full_kv_heads) {
  return {{"hidden_size_per_layer_input", 0},
          {"attention_k_eq_v", true},
          {"num_global_key_value_heads", full_kv_heads},
          {"sliding_window", 1024}};
}
Json mixture_says() {
  Json says = large_says(2);
  says.update({{"enable_moe_block", true}, {"num_experts", 128}, {"top_k_experts", 8}, {"moe_intermediate_size", 704}});
  return says;
}
Json says() {
  return {
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"global_head_dim", 512},
      {"final_logit_softcapping", 30.0},
      {"rope_parameters",
       {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
        {"full_attention", {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}}}}};
}
}  // namespace apus::families::gemma4

namespace apus::families::gemma4_text {

namespace {
// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma4-e2b", 1536, 35, 8, 1, 256, 6144, 262144, 131072, 1e6, true, {}, gemma4::small_says(20, true)},
    {"gemma4-e4b", 2560, 42, 8, 2, 256, 10240, 262144, 131072, 1e6, true, {}, gemma4::small_says(18, false)},
    {"gemma4-26b-a4b", 2816, 30, 16, 8, 256, 2112, 262144, 262144, 1e6, true, {}, gemma4::mixture_says()},
    {"gemma4-31b", 5376, 60, 32, 16, 256, 21504, 262144, 262144, 1e6, true, {}, gemma4::large_says(4)},
};

const RegisterFamily gemma4_text("gemma4_text", {.title = "Gemma 4 (text)",
                                                 .architecture = "Gemma4ForCausalLM",
                                                 .read = read,
                                                 .says = gemma4::says(),
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::gemma4_text
