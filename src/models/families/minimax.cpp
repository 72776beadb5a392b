// SPDX-License-Identifier: Apache-2.0
// MiniMax-Text-01 and M1: lightning attention with a full layer now and then, experts, and sums of normed inputs.
#include "models/families/minimax.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

namespace {
NormedSums::Sum read_sum(const Config& c, const std::string& of) {
  return {c.number((of + "_alpha_factor").c_str(), 1), c.number((of + "_beta_factor").c_str(), 1)};
}

// Every eighth layer looks at all tokens.
template <typename T>
Json eighth_layers(T state, T tokens) {
  Json types = Json::array();
  for (int64_t i = 1; i <= 80; ++i) types.push_back(i % 8 == 0 ? tokens : state);
  return types;
}

// 0: a state, 1: keys and values.
Json layer_types(const Config& c) {
  Json types = Json::array();
  for (const int64_t type : c.integers("attn_type_list")) {
    require(type == 0 || type == 1, Fault::Model, "config.json: attn_type_list holds ", type,
            "; known: 0 (lightning attention), 1 (softmax)");
    types.push_back(type == 0 ? "linear_attention" : "full_attention");
  }
  require(!types.empty(), Fault::Model,
          "config.json: attn_type_list is missing, which says of each layer whether it has lightning attention (0) or "
          "softmax (1)");
  return types;
}

// A number, or one for each layer.
bool has_shared_block(const Config& c) {
  const Json* width = c.find("shared_intermediate_size");
  if (!width || !width->is_array()) return c.integer("shared_intermediate_size", 0) != 0;
  const auto widths = c.integers("shared_intermediate_size");
  return std::any_of(widths.begin(), widths.end(), [](int64_t each) { return each != 0; });
}

std::vector<double> falling_slopes(int64_t heads) {
  std::vector<double> slopes;
  for (int64_t h = 1; h <= heads; ++h)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(heads)));
  return slopes;
}
}  // namespace

DecoderSpec read_minimax(const Config& c, std::vector<double> (*slopes)(int64_t heads), double more_layers) {
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
  use_states(c, spec, LightningForm{spec.shape.heads, spec.shape.head_dim, slopes(spec.shape.heads), more_layers},
             read_layer_types(c, spec.shape.layers,
                              [](int64_t layer) { return layer % 2 == 0 ? Keeps::Tokens : Keeps::State; }));
  return spec;
}

DecoderSpec read_own_minimax(const Config& file) {
  require(file.flag("postnorm", false), Fault::Model,
          "config.json: postnorm is not true: sums of the input instead of the normed input are not supported in this "
          "family; its checkpoints have none");
  require(!has_shared_block(file), Fault::Model,
          "config.json: shared_intermediate_size is not 0: a block beside the experts is not supported in this family; "
          "its checkpoints have none");
  Json words = in_usual_words(file, {{"layernorm_full_attention_alpha", "full_attn_alpha_factor"},
                                     {"layernorm_full_attention_beta", "full_attn_beta_factor"},
                                     {"layernorm_linear_attention_alpha", "linear_attn_alpha_factor"},
                                     {"layernorm_linear_attention_beta", "linear_attn_beta_factor"},
                                     {"layernorm_mlp_alpha", "mlp_alpha_factor"},
                                     {"layernorm_mlp_beta", "mlp_beta_factor"}});
  const int64_t heads = file.integer("num_attention_heads"),
                head_dim = file.integer("head_dim", file.integer("hidden_size") / std::max<int64_t>(heads, 1)),
                turned = file.integer("rotary_dim", head_dim);
  require(heads > 0 && head_dim > 0 && turned > 0 && turned <= head_dim && turned % 2 == 0, Fault::Model,
          "config.json: rotary_dim ", turned, " must be even, above 0 and at most head_dim ", head_dim);
  words["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head_dim);
  words["layer_types"] = layer_types(file);
  return read_minimax(Config(words), usual_slopes, 0);
}

Json own_minimax_says() {
  const double kept = 3.5565588200778455;
  return {{"num_local_experts", 32},
          {"num_experts_per_tok", 2},
          {"attn_type_list", eighth_layers(0, 1)},
          {"postnorm", true},
          {"rotary_dim", 64},
          {"shared_intermediate_size", 0},
          {"shared_moe_mode", "sigmoid"},
          {"sliding_window", nullptr},
          {"rms_norm_eps", 1e-5},
          {"layernorm_full_attention_alpha", kept},
          {"layernorm_linear_attention_alpha", kept},
          {"layernorm_mlp_alpha", kept},
          {"layernorm_full_attention_beta", 1.0},
          {"layernorm_linear_attention_beta", 1.0},
          {"layernorm_mlp_beta", 1.0}};
}

}  // namespace apus

namespace apus::families::minimax {

namespace {
DecoderSpec read(const Config& c) { return read_minimax(c, falling_slopes, 1e-5); }

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minimax-text-01-hf",
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
     {{"layer_types", eighth_layers("linear_attention", "full_attention")}, {"num_local_experts", 32}}},
};

const RegisterFamily minimax("minimax", {.title = "MiniMax-Text-01 in transformers' form",
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
