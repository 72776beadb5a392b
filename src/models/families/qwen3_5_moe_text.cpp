// SPDX-License-Identifier: Apache-2.0
// Qwen3.5-MoE's text part alone: every layer has experts and a shared one.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus::families::qwen3_5_moe_text {

namespace {
constexpr MixtureSpec mixture = {
    .experts = 256, .per_token = 8, .ffn = 512, .shared_ffn = 512, .router = {.normalise = true}};

// name                 hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3.5-35b-a3b-text", 2048, 40, 16, 2, 256, 512, 248320, 262144, 1e7, false, mixture},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "qwen35moe",
    .names = words::delta_names(),
    .keys = words::both(words::both(words::experts("num_experts"),
                                    {{"shared_expert_intermediate_size", "expert_shared_feed_forward_length"}}),
                        words::delta_net()),
    .says = {{"norm_topk_prob", true}},
    .read = words::read_delta_net,
    .write = words::write_delta_net,
    .turns_in_part = true,
    .from_one = true};

const RegisterFamily qwen3_5_moe_text("qwen3_5_moe_text", {.title = "Qwen3.5-MoE, text part",
                                                           .architecture = "Qwen3_5MoeForCausalLM",
                                                           .read = read_qwen3_5_moe,
                                                           .says = qwen3_5_says(),
                                                           .presets = presets,
                                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen3_5_moe_text
