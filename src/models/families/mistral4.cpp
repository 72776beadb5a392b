// SPDX-License-Identifier: Apache-2.0
// Mistral 4, the text part of Mistral Small 4: DeepSeek-V3's attention, whose queries grow by the logarithm of their
// position, and experts by shares of one.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::mistral4 {

namespace {
Json yarn_says() {
  return {
      {"rope_type", "yarn"},        {"rope_theta", 1e4}, {"factor", 128.0}, {"original_max_position_embeddings", 8192},
      {"beta_fast", 32.0},          {"beta_slow", 1.0},  {"mscale", 1.0},   {"mscale_all_dim", 1.0},
      {"llama_4_scaling_beta", 0.1}};
}

DecoderSpec read_said(const Config& c) {
  const int64_t kTurned = 64;
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 32, .positions = 1048576, .ffn = 12288, .head_dim = c.integer("qk_rope_head_dim", kTurned)});
  use_latent_attention(c, spec, c.flag("rope_interleave", true),
                       {.query_rank = 1024, .rank = 256, .still = 64, .turned = kTurned, .value = 128});
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* rope = c.find(key); rope && rope->is_object())
      spec.ropes[0].query_beta = Config(*rope).number("llama_4_scaling_beta", spec.ropes[0].query_beta);
  MixtureSpec mixture = read_routed_experts(c, {.experts = 128, .per_token = 4, .ffn = 2048});
  mixture.router.sigmoid = false, mixture.names.correction = nullptr;
  mixture.names.stacked_gate_up = "experts.gate_up_proj", mixture.names.stacked_down = "experts.down_proj";
  use_experts(c, spec, mixture, sparse_layers(c, spec.shape.layers, 0));
  return spec;
}

DecoderSpec read(const Config& c) {
  if (c.find("rope_parameters") || c.find("rope_scaling")) return read_said(c);
  Json all = c.json();
  all["rope_parameters"] = yarn_says();
  return read_said(Config(all));
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mistral4-119b", 4096, 36, 32, 32, 0, 12288, 131072, 1048576, 1e4, false},
};

const RegisterFamily mistral4("mistral4", {.title = "Mistral Small 4 (text)",
                                           .architecture = "Mistral4ForCausalLM",
                                           .read = read,
                                           .says = {{"q_lora_rank", 1024},
                                                    {"kv_lora_rank", 256},
                                                    {"qk_nope_head_dim", 64},
                                                    {"qk_rope_head_dim", 64},
                                                    {"v_head_dim", 128},
                                                    {"n_routed_experts", 128},
                                                    {"n_shared_experts", 1},
                                                    {"num_experts_per_tok", 4},
                                                    {"moe_intermediate_size", 2048},
                                                    {"first_k_dense_replace", 0},
                                                    {"n_group", 1},
                                                    {"topk_group", 1},
                                                    {"routed_scaling_factor", 1.0},
                                                    {"norm_topk_prob", true},
                                                    {"rope_parameters", yarn_says()}},
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::mistral4
