// SPDX-License-Identifier: Apache-2.0
// Two models share this name. Ling 3.0: Kimi's delta attention with bounded decays in most layers, gated latent
// attention in every sixth. Ling 2.5 and 2.6 and Ring 2.5 and 2.6: lightning attention that turns in most layers,
// latent attention in every eighth. Both: many small experts by sigmoids with a correction, out of groups.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
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

int64_t read_group(const Config& c, int64_t unsaid) {
  const int64_t every = c.integer("layer_group_size", unsaid);
  require(every > 0, Fault::Model, "config.json: layer_group_size must be above 0");
  return every;
}

DiskForm disk_form() {
  return {.inside = {{".self_attn.o_proj.", ".attention.dense."},
                     {".self_attn.", ".attention."},
                     {"gate.e_score_correction_bias", "gate.expert_bias"},
                     {"model.embed_tokens.", "model.word_embeddings."}}};
}

DecoderSpec read_delta(const Config& file) {
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
  const int64_t every = read_group(c, 6);
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
  spec.forms = {disk_form()};
  return spec;
}

// What would be another model of the same tensors.
void refuse_other_lightning(const Config& c) {
  const auto said = [&](const char* key, bool usual) {
    require(c.flag(key, usual) == usual, Fault::Model, "config.json: ", key, " is ", !usual,
            ", which is not supported in this family's lightning attention");
  };
  said("linear_silu", false), said("use_linear_silu", false), said("linear_rope", true);
  for (const char* key : {"score_function", "scoring_func"})
    require(c.text(key, "sigmoid") == "sigmoid", Fault::Model, "config.json: ", key, " '", c.text(key, ""),
            "' is not known in this family, only sigmoid");
  const int64_t expert = c.integer("moe_intermediate_size", 512),
                shared = c.integer("moe_shared_expert_intermediate_size", expert);
  require(shared == expert, Fault::Model, "config.json: moe_shared_expert_intermediate_size ", shared,
          " is not moe_intermediate_size ", expert, ": shared experts as wide as the others are read");
}

// A part of each head turns in the layers with lightning attention, halves apart; latent attention turns neighbours.
void use_lightning(const Config& file, DecoderSpec& spec) {
  const int64_t heads = spec.shape.heads, head_dim = file.integer("head_dim", file.integer("hidden_size") / heads);
  require(head_dim > 0, Fault::Model, "config.json: head_dim must be above 0");
  spec.ropes.push_back(read_rope(file, head_dim, spec.shape.max_positions, {.theta = 6e5, .turned = 0.5}));
  const int64_t every = read_group(file, 5), whole = spec.shape.layers / every * every;
  const auto keeps = [=](int64_t layer) {
    return (layer + 1) % every == 0 || layer >= whole ? Keeps::Tokens : Keeps::State;
  };
  use_states(file, spec,
             TurnedLightningForm{.heads = heads,
                                 .head_dim = head_dim,
                                 .slopes = usual_slopes(heads),
                                 .norm_groups = file.integer("group_norm_size", 4),
                                 .qk_norm = file.flag("use_qk_norm", true),
                                 .qkv_bias = file.flag("use_qkv_bias", false),
                                 .out_bias = file.flag("use_bias", false)},
             keeps);
  for (int64_t i = 0; i < spec.shape.layers; ++i) spec.rope_of[static_cast<size_t>(i)] = keeps(i) == Keeps::State;
}

DecoderSpec read_lightning(const Config& file) {
  refuse_other_lightning(file);
  Json words = usual_words(file);
  words["num_key_value_heads"] = nullptr;  // whatever the file says: latent attention has as many as heads
  const Config c(words);
  DecoderSpec spec = read_decoder(c, {.positions = 32768, .ffn = 5120, .rope = {.theta = 6e5}});
  use_latent_attention(c, spec, file.flag("rope_interleave", true));
  spec.attention.qkv_bias = spec.attention.out_bias = file.flag("use_qkv_bias", false);
  MixtureSpec mixture = read_routed_experts(
      c, {.experts = 256, .per_token = 8, .ffn = 512, .shared = 1, .scale = 1, .groups = 8, .open_groups = 4});
  if (mixture.per_token == 1) mixture.router.normalise = false;
  use_experts(c, spec, mixture, sparse_layers(c, spec.shape.layers, 1));
  use_lightning(file, spec);
  use_layers_ahead(c, spec, {.end_norm = "final_layernorm"});
  DiskForm form = disk_form();
  form.inside.insert(form.inside.begin(), {{".self_attn.qkv_proj.", ".attention.query_key_value."},
                                           {".self_attn.q_norm.", ".attention.query_layernorm."},
                                           {".self_attn.k_norm.", ".attention.key_layernorm."}});
  spec.forms = {form};
  return spec;
}

// Files of both say the same model_type.
constexpr const char* kLightning = "BailingMoeV2_5ForCausalLM";
DecoderSpec read(const Config& c) {
  const auto classes = c.texts("architectures");
  return !classes.empty() && classes[0] == kLightning ? read_lightning(c) : read_delta(c);
}

Json delta_says() {
  return {{"q_lora_rank", nullptr},       {"kv_lora_rank", 512},        {"num_experts", 512},
          {"moe_intermediate_size", 768}, {"first_k_dense_replace", 2}, {"layer_group_size", 6},
          {"short_conv_kernel_size", 4},  {"kda_safe_gate", true},      {"kda_lower_bound", -5.0},
          {"num_nextn_predict_layers", 0}};
}
Json lightning_says() {
  return {{"architectures", {kLightning}}, {"q_lora_rank", 1536},
          {"kv_lora_rank", 512},           {"num_experts", 256},
          {"num_shared_experts", 1},       {"moe_intermediate_size", 1024},
          {"first_k_dense_replace", 1},    {"layer_group_size", 8},
          {"group_norm_size", 4},          {"partial_rotary_factor", 0.5},
          {"use_qk_norm", true},           {"score_function", "sigmoid"},
          {"num_nextn_predict_layers", 0}};
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ling-3.0-flash", 2560, 42, 32, 32, 128, 6144, 157184, 262144, 6e6, false, {}, delta_says()},
    {"ling-2.6-flash", 4096, 32, 32, 32, 128, 9216, 157184, 131072, 6e6, false, {}, lightning_says()},
};

const RegisterFamily bailing_hybrid("bailing_hybrid", {.title = "Ling 3.0; Ling and Ring 2.5 and 2.6",
                                                       .architecture = "BailingHybridForCausalLM",
                                                       .read = read,
                                                       .says = {{"qk_nope_head_dim", 128},
                                                                {"qk_rope_head_dim", 64},
                                                                {"v_head_dim", 128},
                                                                {"num_experts_per_tok", 8},
                                                                {"n_shared_experts", 1},
                                                                {"n_group", 8},
                                                                {"topk_group", 4},
                                                                {"routed_scaling_factor", 2.5},
                                                                {"norm_topk_prob", true}},
                                                       .presets = presets});
}  // namespace

}  // namespace apus::families::bailing_hybrid
