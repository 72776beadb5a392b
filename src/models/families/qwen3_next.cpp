// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next: three layers with a gated delta net, then one with gated attention; experts and a shared one.
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_gated_decoder(c, 2, 5632, false);
  use_qwen_experts(c, spec,
                   {.experts = read_expert_count(c),
                    .per_token = c.integer("num_experts_per_tok", 10),
                    .ffn = c.integer("moe_intermediate_size", 512),
                    .shared_ffn = c.integer("shared_expert_intermediate_size", 512),
                    .router = {.normalise = c.flag("norm_topk_prob", true)}});
  return spec;
}

Json says() {
  Json all = delta_says();
  all["partial_rotary_factor"] = 0.25;
  return all;
}

constexpr MixtureSpec mixture = {
    .experts = 512, .per_token = 10, .ffn = 512, .shared_ffn = 512, .router = {.normalise = true}};

// name              hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3-next-80b-a3b", 2048, 48, 16, 2, 256, 5632, 151936, 262144, 1e7, false, mixture},
};

const RegisterFamily qwen3_next(
    "qwen3_next",
    {.title = "Qwen3-Next", .architecture = "Qwen3NextForCausalLM", .read = read, .says = says(), .presets = presets});
}  // namespace

}  // namespace apus
