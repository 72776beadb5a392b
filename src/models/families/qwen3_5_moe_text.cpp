// SPDX-License-Identifier: Apache-2.0
// Qwen3.5-MoE's text part alone: every layer has experts and a shared one.
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus {

namespace {
constexpr MixtureSpec mixture = {
    .experts = 256, .per_token = 8, .ffn = 512, .shared_ffn = 512, .router = {.normalise = true}};

// name                 hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3.5-35b-a3b-text", 2048, 40, 16, 2, 256, 512, 248320, 262144, 1e7, false, mixture},
};

const RegisterFamily qwen3_5_moe_text("qwen3_5_moe_text", {.title = "Qwen3.5-MoE, text part",
                                                           .architecture = "Qwen3_5MoeForCausalLM",
                                                           .read = read_qwen3_5_moe,
                                                           .says = qwen3_5_says(),
                                                           .presets = presets});
}  // namespace

}  // namespace apus
