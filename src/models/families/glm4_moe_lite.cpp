// SPDX-License-Identifier: Apache-2.0
// GLM-4.7-Flash: DeepSeek-V3's attention and router at other sizes.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_decoder.h"

namespace apus::families::glm4_moe_lite {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t kTurned = 64;
  DecoderSpec spec = read_decoder(c, {.kv_heads = 20,
                                      .positions = 202752,
                                      .ffn = 10240,
                                      .head_dim = c.integer("qk_rope_head_dim", kTurned),
                                      .eps = 1e-5});
  use_latent_attention(c, spec, c.flag("rope_interleave", true),
                       {.query_rank = 768, .rank = 512, .still = 192, .turned = kTurned, .value = 256});
  use_experts(c, spec, read_routed_experts(c, {.experts = 64, .per_token = 4, .ffn = 1536, .scale = 1.8}),
              sparse_layers(c, spec.shape.layers, 1));
  use_layers_ahead(c, spec);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm4.7-flash", 2048, 47, 20, 20, 0, 10240, 154880, 202752, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "deepseek2",
                       .names = words::both(words::latent_names(), words::shared_experts()),
                       .keys = words::routed_experts(),
                       .read = words::read_latent};

const RegisterFamily glm4_moe_lite("glm4_moe_lite", {.title = "GLM-4.7-Flash",
                                                     .architecture = "Glm4MoeLiteForCausalLM",
                                                     .read = read,
                                                     .says = {{"q_lora_rank", 768},
                                                              {"kv_lora_rank", 512},
                                                              {"qk_nope_head_dim", 192},
                                                              {"qk_rope_head_dim", 64},
                                                              {"v_head_dim", 256},
                                                              {"n_routed_experts", 64},
                                                              {"n_shared_experts", 1},
                                                              {"num_experts_per_tok", 4},
                                                              {"moe_intermediate_size", 1536},
                                                              {"first_k_dense_replace", 1},
                                                              {"routed_scaling_factor", 1.8},
                                                              {"norm_topk_prob", true},
                                                              {"n_group", 1},
                                                              {"topk_group", 1},
                                                              {"rms_norm_eps", 1e-5}},
                                                     .presets = presets,
                                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::glm4_moe_lite
