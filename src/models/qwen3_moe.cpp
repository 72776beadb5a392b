// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE: Qwen3 with experts, no shared expert.
#include "models/moe_layers.h"

namespace apus {

namespace {
std::unique_ptr<Model> make_qwen3_moe(const Json& json) {
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4, .ffn = 6144});
  spec.qk_norm = true;
  spec.qkv_bias = spec.out_bias = c.flag("attention_bias", false);
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Always));
  use_experts(c, spec,
              {.hidden = spec.shape.hidden,
               .ffn = c.integer("moe_intermediate_size"),
               .experts = c.find("num_experts") ? c.integer("num_experts") : c.integer("num_local_experts"),
               .per_token = c.integer("num_experts_per_tok", 8),
               .normalise = c.flag("norm_topk_prob", false)});
  return std::make_unique<Decoder>(std::move(spec));
}
const RegisterModel qwen3_moe("qwen3_moe", make_qwen3_moe);
}  // namespace

}  // namespace apus
