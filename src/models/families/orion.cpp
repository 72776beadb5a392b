// SPDX-License-Identifier: Apache-2.0
// Orion 14B, by the code that its files bring: Llama whose norms take the mean off and have biases.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::orion {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096});
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("rms_norm_eps", 1e-5)};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"orion-14b", 5120, 40, 40, 40, 0, 15360, 84608, 4096, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "orion", .eps = words::mean_eps("rms_norm_eps")};

const RegisterFamily orion("orion", {.title = "Orion 14B",
                                     .architecture = "OrionForCausalLM",
                                     .read = read,
                                     .says = {{"rms_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::orion
