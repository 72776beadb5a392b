// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next: three layers with a gated delta net, then one with gated attention; experts and a shared one.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 2, .ffn = 5632, .head_dim = 256, .rope = {.turned = 0.25}});
  spec.norm.kind = NormKind::RmsFromOne;
  spec.attention.gated = true;
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_qwen_experts(c, spec,
                   {.experts = c.integer("num_experts", 512),
                    .per_token = c.integer("num_experts_per_tok", 10),
                    .ffn = c.integer("moe_intermediate_size", 512),
                    .shared_ffn = c.integer("shared_expert_intermediate_size", 512),
                    .router = {.normalise = c.flag("norm_topk_prob", true)}});
  const DeltaForm form{.key_heads = c.integer("linear_num_key_heads", 16),
                       .value_heads = c.integer("linear_num_value_heads", 32),
                       .key_dim = c.integer("linear_key_head_dim", 128),
                       .value_dim = c.integer("linear_value_head_dim", 128),
                       .taps = c.integer("linear_conv_kernel_dim", 4)};
  const int64_t every = c.integer("full_attention_interval", 4);
  use_states(c, spec, form, read_layer_types(c, spec.shape.layers, [&](int64_t layer) {
               return every > 0 && (layer + 1) % every == 0 ? Keeps::Tokens : Keeps::State;
             }));
  return spec;
}

constexpr MixtureSpec mixture = {
    .experts = 512, .per_token = 10, .ffn = 512, .shared_ffn = 512, .router = {.normalise = true}};

// name              hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3-next-80b-a3b", 2048, 48, 16, 2, 256, 5632, 151936, 262144, 1e7, false, mixture},
};

const RegisterFamily qwen3_next("qwen3_next", {.title = "Qwen3-Next",
                                               .architecture = "Qwen3NextForCausalLM",
                                               .read = read,
                                               .says = {{"partial_rotary_factor", 0.25},
                                                        {"full_attention_interval", 4},
                                                        {"linear_num_key_heads", 16},
                                                        {"linear_num_value_heads", 32},
                                                        {"linear_key_head_dim", 128},
                                                        {"linear_value_head_dim", 128},
                                                        {"linear_conv_kernel_dim", 4}},
                                               .presets = presets});
}  // namespace

}  // namespace apus
