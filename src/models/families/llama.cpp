// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3.x: biases only where the config says so; llama3's rotary scaling comes with the config.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::llama {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .mlp_bias = true});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  return spec;
}

Json scaled(double factor) {
  return {{"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}}};
}

// name       hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llama3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 5e5, true, {}, scaled(32)},
    {"llama3.2-3b", 3072, 28, 24, 8, 128, 8192, 128256, 131072, 5e5, true, {}, scaled(32)},
    {"llama3-8b", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 5e5, false},
    {"llama3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, 131072, 5e5, false, {}, scaled(8)},
    {"llama3.1-70b", 8192, 80, 64, 8, 128, 28672, 128256, 131072, 5e5, false, {}, scaled(8)},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "llama", .neighbours = true};

const RegisterFamily llama("llama", {.title = "Llama 2, 3, 3.1 and 3.2",
                                     .architecture = "LlamaForCausalLM",
                                     .read = read,
                                     .says = {{"rms_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::llama
