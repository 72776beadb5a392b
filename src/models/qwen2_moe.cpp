// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts and one shared expert behind a sigmoid gate.
#include "models/moe_layers.h"

namespace apus {

namespace {
std::unique_ptr<Model> make_qwen2_moe(const Json& json) {
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 16, .ffn = 5632});
  spec.qkv_bias = c.flag("qkv_bias", true);
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::EvenBelow));
  use_experts(c, spec,
              {.hidden = spec.shape.hidden,
               .ffn = c.integer("moe_intermediate_size"),
               .experts = c.integer("num_experts"),
               .per_token = c.integer("num_experts_per_tok", 4),
               .normalise = c.flag("norm_topk_prob", false),
               .shared_ffn = c.integer("shared_expert_intermediate_size")});
  return std::make_unique<Decoder>(std::move(spec));
}
const RegisterModel qwen2_moe("qwen2_moe", make_qwen2_moe);
}  // namespace

}  // namespace apus
