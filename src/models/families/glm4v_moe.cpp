// SPDX-License-Identifier: Apache-2.0
// GLM-4.5V and 4.6V: GLM-4.5 with GLM-4.1V's tower.
#include "models/families/glm4v.h"
#include "models/spec/family.h"

namespace apus::families::glm4v_moe {

namespace {
DecoderSpec read(const Config& c) {
  const Json unsaid = {{"vocab_size", 151424},
                       {"hidden_size", 4096},
                       {"num_hidden_layers", 46},
                       {"num_attention_heads", 96},
                       {"max_position_embeddings", 65536},
                       {"attention_bias", true}};
  return with_glm_tower(c, read_glm_text(c, "glm4_moe", unsaid, {{"use_qk_norm", false}}));
}

Json says() {
  return glm_sight_says(151339, 151363,
                        {{"model_type", "glm4v_moe_text"},
                         {"partial_rotary_factor", 0.5},
                         {"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {8, 12, 12}}}},
                         {"attention_bias", true},
                         {"n_routed_experts", 128},
                         {"n_shared_experts", 1},
                         {"num_experts_per_tok", 8},
                         {"moe_intermediate_size", 1408},
                         {"first_k_dense_replace", 1},
                         {"routed_scaling_factor", 1.0},
                         {"norm_topk_prob", true}},
                        {{"model_type", "glm4v_moe"},
                         {"hidden_size", 1536},
                         {"num_heads", 12},
                         {"image_size", 336},
                         {"intermediate_size", 10944},
                         {"out_hidden_size", 4096},
                         {"attention_bias", false}});
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm-4.5v-106b-a12b", 4096, 46, 96, 8, 128, 10944, 151552, 65536, 5e5, false, {}, says()},
};

const RegisterFamily glm4v_moe("glm4v_moe", {.title = "GLM-4.5V and 4.6V",
                                             .architecture = "Glm4vMoeForConditionalGeneration",
                                             .read = read,
                                             .presets = presets});
}  // namespace

}  // namespace apus::families::glm4v_moe
