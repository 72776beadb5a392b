// SPDX-License-Identifier: Apache-2.0
// Llama 4, its text part: experts whose inputs are weighed, and a shared one; heads are normalised after they are
// turned, without weights. Texts are read up to the size of a chunk of its attention, within which it is the usual one.
#include <algorithm>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::llama4_text {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 8, .positions = 131072, .ffn = 8192, .head_dim = 128, .eps = 1e-5, .rope = {.theta = 5e5}});
  spec.ropes[0].neighbours = true;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  if (c.flag("use_qk_norm", true)) spec.attention.qk_norm = QkNorm::AloneAfterRope;
  const int64_t interval = c.integer("no_rope_layer_interval", 4), step = c.integer("interleave_moe_layer_step", 1);
  require(interval > 0 && step > 0, Fault::Model,
          "config.json: no_rope_layer_interval and interleave_moe_layer_step must be above 0");
  const std::vector<int64_t> turns = c.integers("no_rope_layers"), sparse = c.integers("moe_layers");  // 1: it turns
  require(turns.empty() || std::ssize(turns) == spec.shape.layers, Fault::Model, "config.json: no_rope_layers has ",
          turns.size(), " entries, the model ", spec.shape.layers, " layers");
  turn_only(spec,
            [&](size_t i) { return turns.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0 : turns[i] != 0; });
  // Beyond, layers that turn look at their own chunk alone, and the others' scores grow.
  int64_t longest = c.integer("attention_chunk_size", spec.shape.max_positions);
  if (c.flag("attn_temperature_tuning", true)) longest = std::min(longest, c.integer("floor_scale", 8192) - 1);
  spec.shape.max_positions = std::min(spec.shape.max_positions, longest);
  spec.dense_name = "feed_forward";
  const int64_t width = c.integer("intermediate_size", 8192);
  for (FeedForwardSpec& each : spec.feed_forward)
    std::get<DenseSpec>(each).ffn = c.integer("intermediate_size_mlp", 16384);
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 16),
               .per_token = c.integer("num_experts_per_tok", 1),
               .ffn = width,
               .shared_ffn = width,
               .weighs_input = true,
               .router = {.sigmoid = true},
               .names = {.block = "feed_forward",
                         .router = "router",
                         .stacked_gate_up = "experts.gate_up_proj",
                         .stacked_down = "experts.down_proj",
                         .turned = true,
                         .shared_is_gated = false}},
              [&](int64_t layer) {
                return c.find("moe_layers") ? std::find(sparse.begin(), sparse.end(), layer) != sparse.end()
                                            : (layer + 1) % step == 0;
              });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llama4-scout-text", 5120, 48, 40, 8, 128, 8192, 202048, 262144, 5e5, false},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["use_qk_norm"] = file.integer("expert_count") != 128;  // the one that has so many is without
}

const GgufForm gguf = {
    .architecture = "llama4",
    .names = {{"feed_forward.gate_proj", "ffn_gate"},
              {"feed_forward.up_proj", "ffn_up"},
              {"feed_forward.down_proj", "ffn_down"},
              {"feed_forward.router", "ffn_gate_inp"},
              {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
              {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
              {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
              {"feed_forward.experts.gate_up_proj", "ffn_gate_exps.weight", {.rows = first_half, .turned = true}},
              {"feed_forward.experts.gate_up_proj", "ffn_up_exps.weight", {.rows = second_half, .turned = true}},
              {"feed_forward.experts.down_proj", "ffn_down_exps.weight", {.turned = true}}},
    .keys = words::both(
        words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size"),
        {{"intermediate_size_mlp", "feed_forward_length"}, {"interleave_moe_layer_step", "interleave_moe_layer_step"}}),
    .says = {{"no_rope_layer_interval", 4}, {"attention_chunk_size", 8192}, {"attn_temperature_tuning", true}},
    .read = read_gguf};

const RegisterFamily llama4_text("llama4_text", {.title = "Llama 4 (text)",
                                                 .architecture = "Llama4ForCausalLM",
                                                 .read = read,
                                                 .says = {{"num_local_experts", 16},
                                                          {"num_experts_per_tok", 1},
                                                          {"intermediate_size_mlp", 16384},
                                                          {"interleave_moe_layer_step", 1},
                                                          {"no_rope_layer_interval", 4},
                                                          {"attention_chunk_size", 8192},
                                                          {"use_qk_norm", true},
                                                          {"rms_norm_eps", 1e-5}},
                                                 .presets = presets,
                                                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::llama4_text
