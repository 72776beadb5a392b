// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3, R1 and Moonlight: keys and values out of one small vector a token; experts chosen by sigmoids with a
// correction, out of groups, and shared ones beside them.
#include "models/families/deepseek_v3.h"

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_decoder.h"

namespace apus {

DecoderSpec read_deepseek_v3(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096, .ffn = 18432, .head_dim = latent_turned(c)});
  use_latent_attention(c, spec, c.flag("rope_interleave", true));
  const auto scores = c.text("scoring_func", "sigmoid");
  require(scores == "sigmoid", Fault::Model, "config.json: scoring_func '", scores,
          "' is not known in this family, only sigmoid");
  const int64_t dense = c.integer("first_k_dense_replace", 3), every = c.integer("moe_layer_freq", 1);
  require(every > 0, Fault::Model, "config.json: moe_layer_freq must be above 0");
  use_experts(c, spec,
              read_routed_experts(
                  c, {.experts = 256, .per_token = 8, .ffn = 2048, .scale = 2.5, .groups = 8, .open_groups = 4}),
              [&](int64_t layer) { return layer >= dense && layer % every == 0; });
  use_layers_ahead(c, spec);
  return spec;
}

Json deepseek_v3_yarn() {
  return {{"type", "yarn"},
          {"factor", 40},
          {"beta_fast", 32},
          {"beta_slow", 1},
          {"mscale", 1.0},
          {"mscale_all_dim", 1.0},
          {"original_max_position_embeddings", 4096}};
}

Json deepseek_v3_says() {
  return {{"q_lora_rank", 1536},
          {"kv_lora_rank", 512},
          {"qk_nope_head_dim", 128},
          {"qk_rope_head_dim", 64},
          {"v_head_dim", 128},
          {"n_routed_experts", 256},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 8},
          {"moe_intermediate_size", 2048},
          {"first_k_dense_replace", 3},
          {"n_group", 8},
          {"topk_group", 4},
          {"routed_scaling_factor", 2.5},
          {"norm_topk_prob", true},
          {"scoring_func", "sigmoid"}};
}

}  // namespace apus

namespace apus::families::deepseek_v3 {

namespace {
// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-v3",
     7168,
     61,
     128,
     128,
     0,
     18432,
     129280,
     163840,
     1e4,
     false,
     {},
     {{"rope_scaling", deepseek_v3_yarn()}}},
    {"moonlight-16b-a3b",
     2048,
     27,
     16,
     16,
     0,
     11264,
     163840,
     8192,
     50000,
     false,
     {},
     {{"q_lora_rank", nullptr},
      {"n_routed_experts", 64},
      {"n_shared_experts", 2},
      {"num_experts_per_tok", 6},
      {"moe_intermediate_size", 1408},
      {"first_k_dense_replace", 1},
      {"n_group", 1},
      {"topk_group", 1},
      {"routed_scaling_factor", 2.446},
      {"rms_norm_eps", 1e-5}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "deepseek2",
    // Its router gives sigmoids.
    .claims = [](const GgufSays& file) { return file.integer("expert_gating_func").value_or(0) == 2; },
    .names = words::both(words::latent_names(), words::shared_experts()),
    .keys = words::routed_experts(),
    .read = words::read_latent};

const RegisterFamily deepseek_v3("deepseek_v3", {.title = "DeepSeek-V3, R1, V3.1, Moonlight",
                                                 .architecture = "DeepseekV3ForCausalLM",
                                                 .read = read_deepseek_v3,
                                                 .says = deepseek_v3_says(),
                                                 .presets = presets,
                                                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::deepseek_v3
