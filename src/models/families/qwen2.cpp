// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: biases on q, k, v; from layer max_window_layers on a sliding window when the config asks for one.
#include "models/families/qwen2.h"

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus {

DecoderSpec read_qwen2(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32});
  spec.attention.qkv_bias = true;
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Above));
  return spec;
}

}  // namespace apus

namespace apus::families::qwen2 {

namespace {
// dim 0: files leave head_dim out, which is always hidden / heads here.
// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"tiny", 256, 4, 8, 4, 0, 704, 2048, 2048, 1e4, true},
    {"qwen2.5-0.5b", 896, 24, 14, 2, 0, 4864, 151936, 32768, 1e6, true},
    {"qwen2.5-1.5b", 1536, 28, 12, 2, 0, 8960, 151936, 32768, 1e6, true},
    {"qwen2.5-3b", 2048, 36, 16, 2, 0, 11008, 151936, 32768, 1e6, true},
    {"qwen2.5-7b", 3584, 28, 28, 4, 0, 18944, 152064, 32768, 1e6, false},
    {"qwen2.5-14b", 5120, 48, 40, 8, 0, 13824, 152064, 32768, 1e6, false},
    {"qwen2.5-32b", 5120, 64, 40, 8, 0, 27648, 152064, 32768, 1e6, false},
    {"qwen2.5-72b", 8192, 80, 64, 8, 0, 29568, 152064, 32768, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "qwen2"};

const RegisterFamily qwen2("qwen2", {.title = "Qwen2 and Qwen2.5",
                                     .architecture = "Qwen2ForCausalLM",
                                     .read = read_qwen2,
                                     .says = {{"use_sliding_window", false}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen2
