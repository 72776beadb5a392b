// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next: three layers with a gated delta net, then one with gated attention; experts and a shared one.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus::families::qwen3_next {

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

// How it stands in GGUF files.
// Of every key head: its query, its key, the values and the gates that share it.
GgufTurn::Rows part_of_heads(const GgufSizes& s, bool gate) {
  const int64_t heads = s.of("linear_num_key_heads", 16), key = s.of("linear_key_head_dim", 128),
                values = s.of("linear_num_value_heads", 32) / heads * s.of("linear_value_head_dim", 128),
                each = 2 * (key + values);
  GgufTurn::Rows rows;
  for (int part = 0; part < (gate ? 1 : 3); ++part)
    for (int64_t h = 0; h < heads; ++h)
      add_rows(rows, h * each + (gate ? 2 * key + values : part * key), gate || part == 2 ? values : key);
  return rows;
}
GgufTurn::Rows keys_and_values(const GgufSizes& s, int64_t) { return part_of_heads(s, false); }
GgufTurn::Rows gates(const GgufSizes& s, int64_t) { return part_of_heads(s, true); }

const GgufForm gguf = {
    .architecture = "qwen3next",
    .names = {{"post_attention_layernorm", "post_attention_norm"},
              {"linear_attn.in_proj_qkvz", "attn_qkv", {.rows = keys_and_values}},
              {"linear_attn.in_proj_qkvz", "attn_gate", {.rows = gates}},
              {"linear_attn.in_proj_ba", "ssm_ba"},
              {"linear_attn.conv1d", "ssm_conv1d", {.drops_one = true}},
              {"linear_attn.dt_bias", "ssm_dt.bias"},
              {"linear_attn.A_log", "ssm_a", {.numbers = GgufTurn::Numbers::MinusExp}},
              {"linear_attn.norm", "ssm_norm"},
              {"linear_attn.out_proj", "ssm_out"}},
    .keys = words::both(words::both(words::experts("num_experts"),
                                    {{"shared_expert_intermediate_size", "expert_shared_feed_forward_length"}}),
                        words::delta_net()),
    .says = {{"norm_topk_prob", true}, {"decoder_sparse_step", 1}, {"mlp_only_layers", Json::array()}},
    .read = words::read_delta_net,
    .write = words::write_delta_net,
    .turns_in_part = true,
    .from_one = true};

const RegisterFamily qwen3_next("qwen3_next", {.title = "Qwen3-Next",
                                               .architecture = "Qwen3NextForCausalLM",
                                               .read = read,
                                               .says = says(),
                                               .presets = presets,
                                               .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen3_next
