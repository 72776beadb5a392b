// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts and one shared expert behind a sigmoid gate.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::qwen2_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 16, .ffn = 5632});
  spec.attention.qkv_bias = c.flag("qkv_bias", true);
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::EvenBelow));
  use_qwen_experts(c, spec,
                   {.experts = read_expert_count(c),
                    .per_token = c.integer("num_experts_per_tok", 4),
                    .ffn = c.integer("moe_intermediate_size"),
                    .shared_ffn = c.integer("shared_expert_intermediate_size"),
                    .router = {.normalise = c.flag("norm_topk_prob", false)}});
  return spec;
}

constexpr MixtureSpec mixture = {.experts = 60, .per_token = 4, .ffn = 1408, .shared_ffn = 5632};

// name             hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen1.5-moe-a2.7b", 2048, 24, 16, 16, 128, 5632, 151936, 8192, 1e6, false, mixture},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "qwen2moe",
    .keys = words::both(words::experts("num_experts"),
                        {{"shared_expert_intermediate_size", "expert_shared_feed_forward_length"}}),
    .says = {{"norm_topk_prob", false}, {"decoder_sparse_step", 1}, {"mlp_only_layers", Json::array()}}};

const RegisterFamily qwen2_moe("qwen2_moe", {.title = "Qwen1.5-MoE, Qwen2-MoE: experts and a shared one",
                                             .architecture = "Qwen2MoeForCausalLM",
                                             .read = read,
                                             .says = {{"use_sliding_window", false}},
                                             .presets = presets,
                                             .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen2_moe
