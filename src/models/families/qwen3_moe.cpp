// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE: Qwen3 with experts, no shared expert.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::qwen3_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4, .ffn = 6144});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Always));
  use_qwen_experts(c, spec,
                   {.experts = read_expert_count(c),
                    .per_token = c.integer("num_experts_per_tok", 8),
                    .ffn = c.integer("moe_intermediate_size"),
                    .router = {.normalise = c.flag("norm_topk_prob", false)}});
  return spec;
}

constexpr MixtureSpec mixture(int64_t experts, int64_t per_token, int64_t ffn) {
  return {.experts = experts, .per_token = per_token, .ffn = ffn, .router = {.normalise = true}};
}

// name           hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"tiny-moe", 128, 3, 4, 2, 32, 384, 2048, 2048, 1e4, true, mixture(8, 2, 96)},
    {"qwen3-30b-a3b", 2048, 48, 32, 4, 128, 6144, 151936, 40960, 1e6, false, mixture(128, 8, 768)},
    {"qwen3-235b-a22b", 4096, 94, 64, 4, 128, 12288, 151936, 40960, 1e6, false, mixture(128, 8, 1536)},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "qwen3moe",
    .keys = words::experts("num_experts"),
    .says = {{"norm_topk_prob", true}, {"decoder_sparse_step", 1}, {"mlp_only_layers", Json::array()}}};

const RegisterFamily qwen3_moe("qwen3_moe", {.title = "Qwen3-MoE",
                                             .architecture = "Qwen3MoeForCausalLM",
                                             .read = read,
                                             .says = {{"use_sliding_window", false}},
                                             .presets = presets,
                                             .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen3_moe
