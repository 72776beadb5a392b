// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL: Qwen3 that sees. Frames of a video stand apart, each behind its time.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_qwen3_vl.h"

namespace apus::families::qwen3_vl {

namespace {
DecoderSpec read(const Config& c) {
  const Config text = text_part(c);
  DecoderSpec spec = read_decoder(text, {.kv_heads = 32, .positions = 128000, .ffn = 22016, .head_dim = 128});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = text.flag("attention_bias", false);
  use_sight(c, spec, read_qwen3_sight(c));
  return spec;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen3-vl-2b", 2048, 28, 16, 8, 128, 6144, 151936, 262144, 5e6, true, {}, qwen3_tower_says(2048, true)},
    {"qwen3-vl-4b", 2560, 36, 32, 8, 128, 9728, 151936, 262144, 5e6, true, {}, qwen3_tower_says(2560, true)},
    {"qwen3-vl-8b", 4096, 36, 32, 8, 128, 12288, 151936, 262144, 5e6, false, {}, qwen3_tower_says(4096, false)},
    {"qwen3-vl-32b", 5120, 64, 64, 8, 128, 25600, 151936, 262144, 5e6, false, {}, qwen3_tower_says(5120, false)},
};

const RegisterFamily qwen3_vl("qwen3_vl", {.title = "Qwen3-VL",
                                           .architecture = "Qwen3VLForConditionalGeneration",
                                           .read = read,
                                           .says = qwen3_sight_says(),
                                           .presets = presets,
                                           .gguf_tower = qwen3_gguf_tower("qwen3vl", "qwen3", "qwen3_vl_text")});
}  // namespace

}  // namespace apus::families::qwen3_vl
