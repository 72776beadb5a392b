// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL-MoE: Qwen3-VL with experts. Files hold each layer's experts as two tensors, transposed.
#include "gguf/turns.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_qwen3_vl.h"

namespace apus::families::qwen3_vl_moe {

namespace {
DecoderSpec read(const Config& c) {
  const Config text = text_part(c);
  DecoderSpec spec = read_decoder(text, {.kv_heads = 16, .positions = 128000, .ffn = 5632});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = text.flag("attention_bias", false);
  use_qwen_experts(text, spec,
                   {.experts = read_expert_count(text),
                    .per_token = text.integer("num_experts_per_tok", 4),
                    .ffn = text.integer("moe_intermediate_size", 1408),
                    .router = {.normalise = true},  // whatever norm_topk_prob says
                    .names = {.stacked_gate_up = "experts.gate_up_proj", .stacked_down = "experts.down_proj"}});
  SeeingSpec seeing = read_qwen3_sight(c);
  const std::vector<std::string> turned = {".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"};
  seeing.forms = {{.renames = {}, .transposed = turned}, {}};
  use_sight(c, spec, std::move(seeing));
  return spec;
}

constexpr MixtureSpec mixture(int64_t experts, int64_t per_token, int64_t ffn) {
  return {.experts = experts, .per_token = per_token, .ffn = ffn, .router = {.normalise = true}};
}

// name                hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3-vl-30b-a3b", 2048, 48, 32, 4, 128, 6144, 151936, 262144, 5e6, false, mixture(128, 8, 768),
     qwen3_tower_says(2048, false)},
    {"qwen3-vl-235b-a22b", 4096, 94, 64, 4, 128, 12288, 151936, 262144, 5e6, false, mixture(128, 8, 1536),
     qwen3_tower_says(4096, false)},
};

GgufTower gguf_tower() {
  GgufTower tower = qwen3_gguf_tower("qwen3vlmoe", "qwen3_moe", "qwen3_vl_moe_text");
  tower.text_names = {{"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", {.rows = first_half, .turned = true}},
                      {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", {.rows = second_half, .turned = true}},
                      {"mlp.experts.down_proj", "ffn_down_exps.weight", {.turned = true}}};
  return tower;
}

const RegisterFamily qwen3_vl_moe("qwen3_vl_moe", {.title = "Qwen3-VL-MoE",
                                                   .architecture = "Qwen3VLMoeForConditionalGeneration",
                                                   .read = read,
                                                   .says = qwen3_sight_says(),
                                                   .presets = presets,
                                                   .gguf_tower = gguf_tower()});
}  // namespace

}  // namespace apus::families::qwen3_vl_moe
