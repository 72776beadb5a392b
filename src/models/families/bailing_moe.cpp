// SPDX-License-Identifier: Apache-2.0
// Ling 2.0 and Ring 2.0: many small experts by sigmoids with a correction, out of groups; half of a head turns. The
// first Ling: experts by shares of one; whole heads turn; columns of the head are brought to length 1. Queries, keys
// and values are one matrix.
#include "models/families/bailing_moe.h"

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_decoder.h"

namespace apus::families::bailing_moe {

namespace {
DiskForm disk_form() {
  return {.inside = {{"self_attn.qkv_proj", "attention.query_key_value"},
                     {"self_attn.o_proj", "attention.dense"},
                     {"self_attn.q_norm", "attention.query_layernorm"},
                     {"self_attn.k_norm", "attention.key_layernorm"},
                     {"gate.e_score_correction_bias", "gate.expert_bias"},
                     {"model.embed_tokens", "model.word_embeddings"}}};
}

DecoderSpec read_first(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 16384, .eps = 1e-5});
  spec.attention.fused = Fused::Blocks;
  spec.attention.qkv_bias = c.flag("use_qkv_bias", false), spec.attention.out_bias = c.flag("use_bias", true);
  if (c.flag("norm_head", false)) spec.head_norm = DecoderSpec::HeadNorm::Columns;
  const int64_t width = c.integer("moe_intermediate_size"), per_token = c.integer("num_experts_per_tok", 2);
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 16),
               .per_token = per_token,
               .ffn = width,
               .shared_ffn = width * c.integer("num_shared_experts", 0),
               .router = {.normalise = per_token > 1 && c.flag("norm_topk_prob", true)},
               .names = {.shared = "shared_experts", .shared_is_gated = false}},
              sparse_layers(c, spec.shape.layers, 0));
  spec.forms = {disk_form()};
  return spec;
}

DecoderSpec read_second(const Config& c) {
  const std::string scores = c.text("score_function", c.flag("moe_router_enable_expert_bias", false) ? "sigmoid" : "");
  require(scores == "sigmoid", Fault::Model, "config.json: score_function is '", scores,
          "', which is not supported in this family: it is sigmoid, or architectures names BailingMoeForCausalLM, the "
          "first Ling");
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 4, .positions = 32768, .ffn = 5120, .head_dim = 128, .rope = {.theta = 6e5, .turned = 1}});
  spec.attention.fused = Fused::Blocks;
  spec.attention.qkv_bias = c.flag("use_qkv_bias", false), spec.attention.out_bias = c.flag("use_bias", false);
  if (c.flag("use_qk_norm", true)) spec.attention.qk_norm = QkNorm::Head;
  use_experts(c, spec,
              read_routed_experts(c, {.experts = c.integer("num_experts", 256),
                                      .per_token = 8,
                                      .ffn = 512,
                                      .shared = c.integer("num_shared_experts", 1),
                                      .scale = 1,
                                      .groups = 8,
                                      .open_groups = 4}),
              sparse_layers(c, spec.shape.layers, 1));
  use_layers_ahead(c, spec, {.end_norm = "final_layernorm"});
  spec.forms = {disk_form()};
  return spec;
}

// Files of both say the same model_type.
constexpr const char* kFirst = "BailingMoeForCausalLM";
bool is_first(const Config& c) {
  const auto classes = c.texts("architectures");
  return !classes.empty() && classes[0] == kFirst;
}
DecoderSpec read(const Config& c) { return is_first(c) ? read_first(c) : read_second(c); }

Json second_says(int64_t expert_width) {
  return {{"num_experts", 256},
          {"num_shared_experts", 1},
          {"num_experts_per_tok", 8},
          {"moe_intermediate_size", expert_width},
          {"first_k_dense_replace", 1},
          {"n_group", 8},
          {"topk_group", 4},
          {"routed_scaling_factor", 2.5},
          {"score_function", "sigmoid"},
          {"moe_router_enable_expert_bias", true},
          {"partial_rotary_factor", 0.5},
          {"use_qk_norm", true}};
}
Json first_says() {
  return {{"architectures", {kFirst}},
          {"num_experts", 64},
          {"num_shared_experts", 2},
          {"num_experts_per_tok", 6},
          {"moe_intermediate_size", 1408},
          {"first_k_dense_replace", 0},
          {"norm_head", true}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ling-mini-2.0", 2048, 20, 16, 4, 128, 5120, 157184, 32768, 6e5, false, {}, second_says(512)},
    {"ling-flash-2.0", 4096, 32, 32, 4, 128, 9216, 157184, 32768, 6e5, false, {}, second_says(1024)},
    {"ling-lite", 2048, 28, 16, 4, 128, 5632, 126464, 16384, 6e5, false, {}, first_says()},
};

void read_gguf(const GgufSays& file, Json& config) {
  config["use_qkv_bias"] = file.tensor("blk.0.attn_qkv.bias") != nullptr;
  config["use_bias"] = file.tensor("blk.0.attn_output.bias") != nullptr;
  config["use_qk_norm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
  config["score_function"] = "sigmoid";
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  require(
      !is_first(Config(config)), Fault::Model, "config.json: architectures names ", kFirst,
      ", the first Ling, of which no GGUF files are written; Ling 2.0 is, and safetensors are read by most programs");
  out.whole("vocab_size", config.value("vocab_size", int64_t{0}));
}
}  // namespace

}  // namespace apus::families::bailing_moe

namespace apus {

GgufForm bailing_gguf() {
  return {.architecture = "bailingmoe2",
          .names = words::both(words::shared_experts(), {{"model.word_embeddings", "token_embd"},
                                                         {"attention.query_key_value", "attn_qkv"},
                                                         {"attention.dense", "attn_output"},
                                                         {"attention.query_layernorm", "attn_q_norm"},
                                                         {"attention.key_layernorm", "attn_k_norm"},
                                                         {"mlp.gate.expert_bias", "exp_probs_b.bias"}}),
          .keys = words::both(words::experts("num_experts"),
                              {{"num_shared_experts", "expert_shared_count"},
                               {"first_k_dense_replace", "leading_dense_block_count"},
                               {"n_group", "expert_group_count"},
                               {"topk_group", "expert_group_used_count"},
                               {"routed_scaling_factor", "expert_weights_scale", GgufKey::Number},
                               {"norm_topk_prob", "expert_weights_norm", GgufKey::Flag}}),
          .read = families::bailing_moe::read_gguf,
          .write = families::bailing_moe::write_gguf,
          .turns_in_part = true};
}

}  // namespace apus

namespace apus::families::bailing_moe {

namespace {
const RegisterFamily bailing_moe("bailing_moe",
                                 {.title = "Ling 2.0, Ring 2.0; the first Ling",
                                  .architecture = "BailingMoeV2ForCausalLM",
                                  .read = read,
                                  .says = {{"norm_topk_prob", true}, {"use_qkv_bias", false}, {"use_bias", false}},
                                  .presets = presets,
                                  .gguf = bailing_gguf()});
}  // namespace

}  // namespace apus::families::bailing_moe
