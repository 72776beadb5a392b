// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2: keys and values out of one small vector a token; experts by shares of one, out of groups, which are not
// brought to a sum of one, and shared ones beside them.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::deepseek_v2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .ffn = 11008, .head_dim = latent_turned(c), .mlp_bias = true});
  use_latent_attention(c, spec, /*neighbours=*/true);
  const auto method = c.text("topk_method", "greedy");
  const bool groups = method == "group_limited_greedy";
  require(groups || method == "greedy", Fault::Model, "config.json: topk_method '", method,
          "' is not known in this family; known: greedy, group_limited_greedy");
  const int64_t width = c.integer("moe_intermediate_size", 1407), dense = c.integer("first_k_dense_replace", 0),
                every = c.integer("moe_layer_freq", 1);
  require(every > 0, Fault::Model, "config.json: moe_layer_freq must be above 0");
  use_experts(c, spec,
              {.experts = c.integer("n_routed_experts", 64),
               .per_token = c.integer("num_experts_per_tok"),
               .ffn = width,
               .shared_ffn = width * c.integer("n_shared_experts", 2),
               // norm_topk_prob is false in all files, and HuggingFace's code does not read it.
               .router = {.normalise = false,
                          .scale = c.number("routed_scaling_factor", 1),
                          .groups = groups ? c.integer("n_group") : 1,
                          .open_groups = groups ? c.integer("topk_group") : 1,
                          .two_best = false},
               .names = {.shared = "shared_experts", .shared_is_gated = false}},
              [&](int64_t layer) { return layer >= dense && layer % every == 0; });
  return spec;
}

const Json kYarn = {{"type", "yarn"},
                    {"factor", 40},
                    {"beta_fast", 32},
                    {"beta_slow", 1},
                    {"mscale", 0.707},
                    {"mscale_all_dim", 0.707},
                    {"original_max_position_embeddings", 4096}};

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-v2-lite", 2048, 27, 16, 16, 0, 10944, 102400, 163840, 1e4, false},
    {"deepseek-v2",
     5120,
     60,
     128,
     128,
     0,
     12288,
     102400,
     163840,
     1e4,
     false,
     {},
     {{"q_lora_rank", 1536},
      {"n_routed_experts", 160},
      {"moe_intermediate_size", 1536},
      {"topk_method", "group_limited_greedy"},
      {"n_group", 8},
      {"topk_group", 3},
      {"routed_scaling_factor", 16.0}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  words::read_latent(file, config);
  config["topk_method"] = file.integer("expert_group_count").value_or(1) > 1 ? "group_limited_greedy" : "greedy";
}

const GgufForm gguf = {.architecture = "deepseek2",
                       .names = words::both(words::latent_names(), words::shared_experts()),
                       .keys = words::routed_experts(),
                       .says = {{"norm_topk_prob", false}},
                       .read = read_gguf};

const RegisterFamily deepseek_v2("deepseek_v2", {.title = "DeepSeek-V2",
                                                 .architecture = "DeepseekV2ForCausalLM",
                                                 .read = read,
                                                 .says = {{"q_lora_rank", nullptr},
                                                          {"kv_lora_rank", 512},
                                                          {"qk_nope_head_dim", 128},
                                                          {"qk_rope_head_dim", 64},
                                                          {"v_head_dim", 128},
                                                          {"n_routed_experts", 64},
                                                          {"n_shared_experts", 2},
                                                          {"num_experts_per_tok", 6},
                                                          {"moe_intermediate_size", 1408},
                                                          {"first_k_dense_replace", 1},
                                                          {"topk_method", "greedy"},
                                                          {"routed_scaling_factor", 1.0},
                                                          {"rope_scaling", kYarn}},
                                                 .presets = presets,
                                                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::deepseek_v2
