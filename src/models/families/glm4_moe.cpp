// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 and 4.6: experts chosen by sigmoids with a correction, out of groups, and shared ones beside them.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_decoder.h"

namespace apus::families::glm4_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 8, .positions = 131072, .ffn = 10944, .eps = 1e-5, .rope = {.turned = 0.5}});
  spec.attention.qkv_bias = c.flag("attention_bias", false);
  if (c.flag("use_qk_norm", false)) spec.attention.qk_norm = QkNorm::Head;
  const int64_t dense = c.integer("first_k_dense_replace", 1);
  use_experts(c, spec, read_routed_experts(c, {.experts = 128, .per_token = 8, .ffn = 1408}),
              [&](int64_t layer) { return layer >= dense; });
  use_layers_ahead(c, spec);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm4.5-air", 4096, 46, 96, 8, 128, 10944, 151552, 131072, 1e6, false},
    {"glm4.5",
     5120,
     92,
     96,
     8,
     128,
     12288,
     151552,
     131072,
     1e6,
     false,
     {},
     {{"use_qk_norm", true},
      {"n_routed_experts", 160},
      {"moe_intermediate_size", 1536},
      {"first_k_dense_replace", 3},
      {"routed_scaling_factor", 2.5}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["use_qk_norm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
}

const GgufForm gguf = {
    .architecture = "glm4moe",
    .names = words::both(words::shared_experts(), {{"post_attention_layernorm", "post_attention_norm"}}),
    .keys = words::routed_experts(),
    .read = read_gguf,
    .turns_in_part = true};

const RegisterFamily glm4_moe("glm4_moe", {.title = "GLM-4.5 and 4.6",
                                           .architecture = "Glm4MoeForCausalLM",
                                           .read = read,
                                           .says = {{"attention_bias", true},
                                                    {"partial_rotary_factor", 0.5},
                                                    {"rms_norm_eps", 1e-5},
                                                    {"n_routed_experts", 128},
                                                    {"n_shared_experts", 1},
                                                    {"num_experts_per_tok", 8},
                                                    {"moe_intermediate_size", 1408},
                                                    {"first_k_dense_replace", 1},
                                                    {"routed_scaling_factor", 1.0},
                                                    {"norm_topk_prob", true}},
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::glm4_moe
