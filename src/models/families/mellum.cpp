// SPDX-License-Identifier: Apache-2.0
// Mellum 2: Qwen3-MoE some of whose layers slide, with rotary settings of their own.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::mellum {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4,
                                      .positions = 131072,
                                      .ffn = 7168,
                                      .head_dim = 128,
                                      .rope = {.theta = 5e5, .of = RopeOf::FullLayers}});
  spec.window = read_windows(
      c, spec.shape.layers, [](int64_t) { return false; }, 1024);
  turn_sliding_layers(
      spec, read_rope(c, spec.shape.head_dim, spec.shape.max_positions, {.theta = 1e4, .of = RopeOf::SlidingLayers}));
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_experts(c, spec,
              {.experts = read_expert_count(c),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = c.integer("moe_intermediate_size", 896),
               .router = {.normalise = c.flag("norm_topk_prob", true)}},
              sparse_layers(c, spec.shape.layers, 0));
  return spec;
}

constexpr MixtureSpec mixture{.experts = 64, .per_token = 8, .ffn = 896, .router = {.normalise = true}};

// name               hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"mellum2-12b-a2.5b", 2304, 28, 32, 4, 128, 7168, 98304, 131072, 5e5, false, mixture},
};

// How it stands in GGUF files, in which every layer has experts.
void read_gguf(const GgufSays& file, Json& config) {
  words::read_windows_of_layers(file, config);
  words::read_turns_of_layers(file, config);
  if (!file.integer("attention.sliding_window")) config["sliding_window"] = nullptr;
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const DecoderSpec spec = read(Config(config));
  words::write_windows_of_layers(spec.window, out);
  out.number("rope.freq_base_swa", spec.ropes.back().theta);
}

const GgufForm gguf = {.architecture = "mellum",
                       .keys = words::both(words::experts("num_local_experts"), {words::window()}),
                       .says = {{"norm_topk_prob", true}},
                       .read = read_gguf,
                       .write = write_gguf};

const RegisterFamily mellum("mellum", {.title = "Mellum 2",
                                       .architecture = "MellumForCausalLM",
                                       .read = read,
                                       .says = {{"norm_topk_prob", true}, {"sliding_window", 1024}},
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::mellum
