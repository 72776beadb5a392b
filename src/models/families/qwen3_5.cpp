// SPDX-License-Identifier: Apache-2.0
// Qwen3.5: its text part with Qwen3-VL's tower, which adds nothing behind the decoder's first layers.
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"
#include "models/spec/read_qwen3_vl.h"

namespace apus::families::qwen3_5 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_qwen3_5(text_part(c));
  use_sight(c, spec, read_qwen3_tower(c));
  return spec;
}

// name       hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3.5-9b", 4096, 32, 16, 4, 256, 12288, 248320, 262144, 1e7, false, {}, qwen3_5_tower_says(4096)},
};

const RegisterFamily qwen3_5("qwen3_5", {.title = "Qwen3.5",
                                         .architecture = "Qwen3_5ForConditionalGeneration",
                                         .read = read,
                                         .says = qwen3_5_says(),
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::qwen3_5
