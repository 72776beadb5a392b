// SPDX-License-Identifier: Apache-2.0
// Jais 2: Llama with norms that take the mean off, biases everywhere and the square of relu.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::jais2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 8192, .ffn = 26624});
  spec.act = read_activation(c, "hidden_act", "relu2");
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", true);
  use_plain(spec, {.up = "up_proj", .down = "down_proj"}, c.flag("mlp_bias", true));
  return spec;
}

// name      hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"jais2-8b", 3328, 32, 26, 26, 128, 26624, 150272, 8192, 5e5, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "jais2", .eps = words::mean_eps("layer_norm_eps"), .says = {{"hidden_act", "relu2"}}};

const RegisterFamily jais2("jais2", {.title = "Jais 2",
                                     .architecture = "Jais2ForCausalLM",
                                     .read = read,
                                     .says = {{"hidden_act", "relu2"}, {"layer_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::jais2
