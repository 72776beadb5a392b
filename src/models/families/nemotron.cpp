// SPDX-License-Identifier: Apache-2.0
// Nemotron 3, 4 and Minitron: norms that take the mean off, with weights from one and biases; the square of relu; half
// of each head turned.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::nemotron {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096, .rope = {.turned = 0.5}});
  spec.act = read_activation(c, "hidden_act", "relu2");
  spec.norm = {.kind = NormKind::MeanFromOneAndBias, .eps = c.number("norm_eps", 1e-5)};
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_plain(spec, {.up = "up_proj", .down = "down_proj"}, c.flag("mlp_bias", false));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minitron-4b", 3072, 32, 24, 8, 128, 9216, 256000, 4096, 1e4, false},
    {"minitron-8b", 4096, 32, 48, 8, 128, 16384, 256000, 4096, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "nemotron",
                       .eps = words::mean_eps("norm_eps"),
                       .says = {{"hidden_act", "relu2"}},
                       .turns_in_part = true,
                       .from_one = true};

const RegisterFamily nemotron("nemotron",
                              {.title = "Nemotron 4, Minitron",
                               .architecture = "NemotronForCausalLM",
                               .read = read,
                               .says = {{"hidden_act", "relu2"}, {"norm_eps", 1e-5}, {"partial_rotary_factor", 0.5}},
                               .presets = presets,
                               .gguf = gguf});
}  // namespace

}  // namespace apus::families::nemotron
