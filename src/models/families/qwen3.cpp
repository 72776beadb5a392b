// SPDX-License-Identifier: Apache-2.0
// Qwen3: q and k normalised per head, no biases unless the config says so.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::qwen3 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32, .head_dim = 128});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Above));
  return spec;
}

// name      hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen3-0.6b", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e6, true},
    {"qwen3-1.7b", 2048, 28, 16, 8, 128, 6144, 151936, 40960, 1e6, true},
    {"qwen3-4b", 2560, 36, 32, 8, 128, 9728, 151936, 40960, 1e6, true},
    {"qwen3-8b", 4096, 36, 32, 8, 128, 12288, 151936, 40960, 1e6, false},
    {"qwen3-14b", 5120, 40, 40, 8, 128, 17408, 151936, 40960, 1e6, false},
    {"qwen3-32b", 5120, 64, 64, 8, 128, 25600, 151936, 40960, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "qwen3"};

const RegisterFamily qwen3("qwen3", {.title = "Qwen3",
                                     .architecture = "Qwen3ForCausalLM",
                                     .read = read,
                                     .says = {{"use_sliding_window", false}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen3
