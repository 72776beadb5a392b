// SPDX-License-Identifier: Apache-2.0
// Mistral: Llama without biases, with a sliding window on every layer where the config has one.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::mistral {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8, .positions = 131072});
  spec.window = read_windows(c, spec.shape.layers, Slides::Always);
  return spec;
}

// name      hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mistral-7b", 4096, 32, 32, 8, 128, 14336, 32768, 32768, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "llama", .says = {{"sliding_window", nullptr}}, .neighbours = true};

const RegisterFamily mistral("mistral", {.title = "Mistral 7B",
                                         .architecture = "MistralForCausalLM",
                                         .read = read,
                                         .says = {{"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::mistral
