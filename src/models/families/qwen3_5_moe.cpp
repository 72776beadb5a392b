// SPDX-License-Identifier: Apache-2.0
// Qwen3.5-MoE: Qwen3.5 with experts and a shared one in every layer.
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"
#include "models/spec/read_qwen3_vl.h"

namespace apus::families::qwen3_5_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_qwen3_5_moe(text_part(c));
  use_sight(c, spec, read_qwen3_tower(c));
  return spec;
}

constexpr MixtureSpec mixture = {
    .experts = 256, .per_token = 8, .ffn = 512, .shared_ffn = 512, .router = {.normalise = true}};

// name            hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3.5-35b-a3b", 2048, 40, 16, 2, 256, 512, 248320, 262144, 1e7, false, mixture, qwen3_5_tower_says(2048)},
};

const RegisterFamily qwen3_5_moe("qwen3_5_moe", {.title = "Qwen3.5-MoE",
                                                 .architecture = "Qwen3_5MoeForConditionalGeneration",
                                                 .read = read,
                                                 .says = qwen3_5_says(),
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::qwen3_5_moe
