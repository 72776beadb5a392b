// SPDX-License-Identifier: Apache-2.0
// Sarvam-30B: GLM-4.5's mixture, whole heads turn; queries, keys and values are one matrix in the file.
#include "models/families/bailing_moe.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::sarvam_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 4, .positions = 131072, .ffn = 8192, .head_dim = 64, .rope = {.theta = 8e6}});
  spec.attention.fused = Fused::Blocks;
  spec.attention.qkv_bias = c.flag("attention_bias", c.flag("use_qkv_bias", false));
  if (c.flag("use_qk_norm", true)) spec.attention.qk_norm = QkNorm::Head;
  use_experts(c, spec,
              read_routed_experts(c, {.experts = c.integer("num_experts", 128),
                                      .per_token = 6,
                                      .ffn = 1024,
                                      .shared = c.integer("num_shared_experts", 1),
                                      .scale = 2.5}),
              sparse_layers(c, spec.shape.layers, 1));
  spec.shape.unread_layers = c.integer("num_nextn_predict_layers", 0);
  spec.forms = {{.inside = {{"self_attn.qkv_proj", "attention.query_key_value"},
                            {"self_attn.o_proj", "attention.dense"},
                            {"self_attn.q_norm", "attention.query_layernorm"},
                            {"self_attn.k_norm", "attention.key_layernorm"},
                            {"gate.e_score_correction_bias", "gate.expert_bias"},
                            {"model.embed_tokens", "model.word_embeddings"}}}};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"sarvam-30b", 4096, 19, 64, 4, 64, 8192, 262144, 131072, 8e6, false},
};

// Whole heads turn in its GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["attention_bias"] = file.tensor("blk.0.attn_qkv.bias") != nullptr;
  config["use_qk_norm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
}
GgufForm gguf() {
  GgufForm form = bailing_gguf();
  form.claims = [](const GgufSays& file) {
    return file.integer("rope.dimension_count") == file.integer("attention.key_length");
  };
  form.read = read_gguf;
  return form;
}

const RegisterFamily sarvam_moe("sarvam_moe", {.title = "Sarvam-30B",
                                               .architecture = "Glm4MoeForCausalLM",
                                               .read = read,
                                               .says = {{"n_routed_experts", 128},
                                                        {"n_shared_experts", 1},
                                                        {"num_experts_per_tok", 6},
                                                        {"moe_intermediate_size", 1024},
                                                        {"first_k_dense_replace", 1},
                                                        {"routed_scaling_factor", 2.5},
                                                        {"norm_topk_prob", true},
                                                        {"n_group", 1},
                                                        {"topk_group", 1},
                                                        {"use_qk_norm", true}},
                                               .presets = presets,
                                               .gguf = gguf()});
}  // namespace

}  // namespace apus::families::sarvam_moe
