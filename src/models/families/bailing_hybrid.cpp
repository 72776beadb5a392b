// SPDX-License-Identifier: Apache-2.0
// Ling 3.0: Kimi's delta attention with bounded decays in most layers, gated latent attention in every sixth; many
// small experts by sigmoids with a correction, out of groups.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::bailing_hybrid {

namespace {
// The words of older files beside those of transformers.
Json usual_words(const Config& c) {
  Json words = in_usual_words(c, {{"model_max_length", "max_position_embeddings"},
                                  {"moe_renormalize", "norm_topk_prob"},
                                  {"num_expert_group", "n_group"},
                                  {"num_experts_per_token", "num_experts_per_tok"},
                                  {"num_shared_experts", "n_shared_experts"},
                                  {"num_mtp_layers", "num_nextn_predict_layers"},
                                  {"num_experts", "n_routed_experts"},
                                  {"num_local_experts", "n_routed_experts"}});
  words["head_dim"] = c.integer("qk_rope_head_dim", 64);
  if (!words.contains("q_lora_rank")) words["q_lora_rank"] = nullptr;
  return words;
}

DecoderSpec read(const Config& file) {
  const Json words = usual_words(file);
  const Config c(words);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32, .positions = 262144, .ffn = 6144, .rope = {.theta = 6e6}});
  use_latent_attention(c, spec, /*neighbours=*/true);
  spec.attention.gate_name = "g_proj", spec.attention.gates_heads = true;
  use_experts(
      c, spec,
      read_routed_experts(
          c, {.experts = 512, .per_token = 8, .ffn = 768, .shared = 1, .scale = 2.5, .groups = 8, .open_groups = 4}),
      sparse_layers(c, spec.shape.layers, 2));
  const int64_t every = c.integer("layer_group_size", 6);
  require(every > 0, Fault::Model, "config.json: layer_group_size must be above 0");
  const double strongest = c.number("kda_lower_bound", -5);
  require(strongest < 0, Fault::Model, "config.json: kda_lower_bound must be below 0, it is ", strongest);
  use_states(c, spec,
             KimiDeltaForm{.heads = spec.shape.heads,
                           .head_dim = file.integer("head_dim", 128),
                           .taps = c.integer("short_conv_kernel_size", 4),
                           .at_once = true,
                           .strongest = c.flag("kda_safe_gate", true) ? strongest : 0},
             read_layer_types(c, spec.shape.layers, [every](int64_t layer) {
               return (layer + 1) % every == 0 ? Keeps::Tokens : Keeps::State;
             }));
  spec.shape.unread_layers = c.integer("num_nextn_predict_layers", 1);
  spec.forms = {{.inside = {{".self_attn.o_proj.", ".attention.dense."},
                            {".self_attn.", ".attention."},
                            {"gate.e_score_correction_bias", "gate.expert_bias"},
                            {"model.embed_tokens.", "model.word_embeddings."}}}};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ling-3.0-flash", 2560, 42, 32, 32, 128, 6144, 157184, 262144, 6e6, false},
};

const RegisterFamily bailing_hybrid("bailing_hybrid", {.title = "Ling 3.0",
                                                       .architecture = "BailingHybridForCausalLM",
                                                       .read = read,
                                                       .says = {{"q_lora_rank", nullptr},
                                                                {"kv_lora_rank", 512},
                                                                {"qk_nope_head_dim", 128},
                                                                {"qk_rope_head_dim", 64},
                                                                {"v_head_dim", 128},
                                                                {"num_experts", 512},
                                                                {"num_experts_per_tok", 8},
                                                                {"n_shared_experts", 1},
                                                                {"moe_intermediate_size", 768},
                                                                {"first_k_dense_replace", 2},
                                                                {"n_group", 8},
                                                                {"topk_group", 4},
                                                                {"routed_scaling_factor", 2.5},
                                                                {"norm_topk_prob", true},
                                                                {"layer_group_size", 6},
                                                                {"short_conv_kernel_size", 4},
                                                                {"kda_safe_gate", true},
                                                                {"kda_lower_bound", -5.0},
                                                                {"num_nextn_predict_layers", 0}},
                                                       .presets = presets});
}  // namespace

}  // namespace apus::families::bailing_hybrid
