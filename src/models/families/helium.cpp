// SPDX-License-Identifier: Apache-2.0
// Helium: Llama whose neighbours turn together.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::helium {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 20, .positions = 4096, .head_dim = 128, .mlp_bias = true, .eps = 1e-8, .rope = {.theta = 1e5}});
  spec.attention.qkv_bias = c.flag("attention_bias", false);
  spec.ropes[0].neighbours = true;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"helium-1-2b", 2048, 28, 16, 8, 128, 8192, 64000, 4096, 20000, false},
    {"helium-1-preview-2b", 2560, 24, 20, 20, 128, 7040, 48000, 4096, 1e5, false},
};

const RegisterFamily helium("helium", {.title = "Helium",
                                       .architecture = "HeliumForCausalLM",
                                       .read = read,
                                       .says = {{"rms_norm_eps", 1e-8}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::helium
