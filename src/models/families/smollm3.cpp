// SPDX-License-Identifier: Apache-2.0
// SmolLM3: Llama in which every fourth layer is not told positions.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::smollm3 {

namespace {
// The list says 1 where positions are told.
std::vector<bool> turning_layers(const Config& c, int64_t layers) {
  std::vector<bool> turns(static_cast<size_t>(layers));
  const auto list = c.integers("no_rope_layers");
  const int64_t every = c.integer("no_rope_layer_interval", 4);
  require(list.empty() || list.size() == turns.size(), Fault::Model, "config.json: no_rope_layers has ", list.size(),
          " entries, the model ", layers, " layers");
  require(every > 0, Fault::Model, "config.json: no_rope_layer_interval must be above 0");
  for (int64_t i = 0; i < layers; ++i)
    turns[static_cast<size_t>(i)] = list.empty() ? (i + 1) % every != 0 : list[static_cast<size_t>(i)] != 0;
  return turns;
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4, .mlp_bias = true, .tied = true, .rope = {.theta = 2e6}});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const auto turns = turning_layers(c, spec.shape.layers);
  turn_only(spec, [&](size_t i) { return turns[i]; });
  if (c.flag("use_sliding_window", false) && c.find("sliding_window"))
    spec.window = read_windows(c, spec.shape.layers, [&](int64_t i) { return !turns[static_cast<size_t>(i)]; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"smollm3-3b", 2048, 36, 16, 4, 0, 11008, 128256, 65536, 5e6, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "smollm3", .says = {{"no_rope_layer_interval", 4}}, .neighbours = true};

const RegisterFamily smollm3(
    "smollm3",
    {.title = "SmolLM3", .architecture = "SmolLM3ForCausalLM", .read = read, .presets = presets, .gguf = gguf});
}  // namespace

}  // namespace apus::families::smollm3
