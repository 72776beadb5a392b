// SPDX-License-Identifier: Apache-2.0
// MiniMax-Text-01 and M1: lightning attention with a full layer now and then, experts, and sums of normed inputs.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::minimax {

namespace {
NormedSums::Sum read_sum(const Config& c, const std::string& of) {
  return {c.number((of + "_alpha_factor").c_str(), 1), c.number((of + "_beta_factor").c_str(), 1)};
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 8, .positions = 131072, .ffn = 14336, .eps = 1e-5, .rope = {.theta = 1e6}});
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 8),
               .per_token = c.integer("num_experts_per_tok", 2),
               .ffn = c.integer("intermediate_size", 14336),
               .router = {.normalise = true},
               .names = {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"}},
              [](int64_t) { return true; });
  spec.normed_sums = {
      .attention = read_sum(c, "full_attn"), .state = read_sum(c, "linear_attn"), .feed_forward = read_sum(c, "mlp")};
  if (c.find("sliding_window")) spec.window = read_windows(c, spec.shape.layers, Slides::Always);
  use_states(c, spec, LightningForm{spec.shape.heads, spec.shape.head_dim},
             read_layer_types(c, spec.shape.layers,
                              [](int64_t layer) { return layer % 2 == 0 ? Keeps::Tokens : Keeps::State; }));
  return spec;
}

// Every eighth layer looks at all tokens.
Json eighth_layers(int64_t layers) {
  Json types = Json::array();
  for (int64_t i = 1; i <= layers; ++i) types.push_back(i % 8 == 0 ? "full_attention" : "linear_attention");
  return types;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minimax-text-01",
     6144,
     80,
     64,
     8,
     128,
     9216,
     200064,
     10240000,
     1e7,
     false,
     {},
     {{"layer_types", eighth_layers(80)}, {"num_local_experts", 32}}},
};

const RegisterFamily minimax("minimax", {.title = "MiniMax-Text-01 and M1",
                                         .architecture = "MiniMaxForCausalLM",
                                         .read = read,
                                         .says = {{"num_local_experts", 8},
                                                  {"num_experts_per_tok", 2},
                                                  {"sliding_window", nullptr},
                                                  {"rms_norm_eps", 1e-5},
                                                  {"full_attn_alpha_factor", 3.5565588200778455},
                                                  {"linear_attn_alpha_factor", 3.5565588200778455},
                                                  {"mlp_alpha_factor", 3.5565588200778455},
                                                  {"full_attn_beta_factor", 1.0},
                                                  {"linear_attn_beta_factor", 1.0},
                                                  {"mlp_beta_factor", 1.0}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::minimax
