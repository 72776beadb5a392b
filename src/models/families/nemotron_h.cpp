// SPDX-License-Identifier: Apache-2.0
// Nemotron-H and Nemotron 3: every layer is one of Mamba-2, attention that is not told positions, a feed-forward,
// experts; those square what relu leaves.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

namespace {
// M: Mamba-2; E: experts; *: attention; -: a feed-forward.
constexpr const char* kNano = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
constexpr const char* kEight = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";

int64_t either(const Config& c, const char* key, const char* older, int64_t unsaid) {
  return c.find(key) ? c.integer(key) : c.integer(older, unsaid);
}

std::vector<std::string> layer_kinds(const Config& c) {
  const std::map<std::string, std::string> kinds = {{"M", "linear_attention"},
                                                    {"E", "moe"},
                                                    {"*", "full_attention"},
                                                    {"-", "mlp"},
                                                    {"mamba", "linear_attention"},
                                                    {"moe", "moe"},
                                                    {"mlp", "mlp"},
                                                    {"attention", "full_attention"},
                                                    {"linear_attention", "linear_attention"},
                                                    {"full_attention", "full_attention"}};
  std::vector<std::string> said = c.texts("layers_block_type");
  if (said.empty()) said = c.texts("layer_types");
  if (said.empty())
    for (const char letter : c.text("hybrid_override_pattern", "")) said.emplace_back(1, letter);
  if (said.empty()) said = {"M", "E", "*", "-"};
  for (std::string& each : said) {
    const auto kind = kinds.find(each);
    require(kind != kinds.end(), Fault::Model, "config.json: a layer of kind '", each,
            "' is not known; known: linear_attention, full_attention, mlp, moe");
    each = kind->second;
  }
  return said;
}

DecoderSpec read(const Config& c) {
  const std::vector<std::string> types = layer_kinds(c);
  Json json = c.json();
  json["num_hidden_layers"] = types.size();
  json["rms_norm_eps"] = c.number("layer_norm_epsilon", 1e-5);
  json["hidden_act"] = "silu";
  DecoderSpec spec =
      read_decoder(Config(json), {.kv_heads = 8, .positions = 4096, .ffn = 21504, .head_dim = 128, .mlp_bias = true});
  turn_only(spec, [](size_t) { return false; });
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const auto is = [&](int64_t layer, const char* kind) { return types[static_cast<size_t>(layer)] == kind; };
  use_kind(spec, FeedForwardKind::Plain, c.flag("mlp_bias", false));
  for (FeedForwardSpec& each : spec.feed_forward)
    std::get<DenseSpec>(each).names = {.up = "up_proj", .down = "down_proj"};
  const int64_t groups = either(c, "n_groups", "mamba_n_groups", 8);
  const MambaForm form{.heads = c.integer("mamba_num_heads", 128),
                       .head_dim = c.integer("mamba_head_dim", 64),
                       .groups = groups,
                       .state = c.integer("ssm_state_size", 128),
                       .taps = either(c, "conv_kernel", "mamba_d_conv", 4),
                       .conv_bias = c.flag("use_conv_bias", c.flag("mamba_conv_bias", true)),
                       .in_bias = c.flag("use_bias", false),
                       .out_bias = c.flag("use_bias", false),
                       .norm_groups = groups,
                       .least_step = c.number("time_step_min", c.number("mamba_dt_min", 0.001))};
  use_states(c, spec, form, [&](int64_t layer) {
    return is(layer, "linear_attention") ? Keeps::State : is(layer, "full_attention") ? Keeps::Tokens : Keeps::Nothing;
  });
  require(spec.state.has_value(), Fault::Model, "config.json: none of the layers is a Mamba layer");
  spec.act = read_activation(c, "mlp_hidden_act", "relu2");
  if (std::find(types.begin(), types.end(), "moe") != types.end()) {
    require(spec.act == Activation::Relu2 && !c.flag("mlp_bias", false), Fault::Model,
            "config.json: experts with biases, or with another mlp_hidden_act than relu2, are not supported");
    use_experts(c, spec,
                {.experts = c.integer("n_routed_experts", 8),
                 .per_token = c.integer("num_experts_per_tok", 2),
                 .ffn = c.integer("moe_intermediate_size", 7688),
                 .shared_ffn = c.integer("moe_shared_expert_intermediate_size", 7688),
                 .gated = false,
                 .latent = c.integer("moe_latent_size", 0),
                 .router = read_sigmoid_router(c, 1),
                 .names = {.correction = "gate.e_score_correction_bias",
                           .shared = "shared_experts",
                           .shared_is_gated = false,
                           .shared_kind = FeedForwardKind::Plain,
                           .of_shared = {.up = "up_proj", .down = "down_proj"}}},
                [&](int64_t layer) { return is(layer, "moe"); });
  }
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    if (spec.shape.keeps_in(i) != Keeps::Nothing) spec.feed_forward[static_cast<size_t>(i)] = NoFeedForward{};
  spec.forms = {mixer_names("backbone"), mixer_names("model")};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"nemotron3-nano-30b-a3b",
     2688,
     52,
     32,
     2,
     128,
     1856,
     131072,
     262144,
     1e4,
     false,
     {},
     {{"hybrid_override_pattern", kNano}}},
    {"nemotron-h-8b",
     4096,
     52,
     32,
     8,
     128,
     21504,
     131072,
     8192,
     1e4,
     false,
     {},
     {{"hybrid_override_pattern", kEight}, {"mamba_num_heads", 128}}},
};

const RegisterFamily nemotron_h("nemotron_h", {.title = "Nemotron-H, Nemotron 3",
                                               .architecture = "NemotronHForCausalLM",
                                               .read = read,
                                               .says = {{"mamba_num_heads", 64},
                                                        {"mamba_head_dim", 64},
                                                        {"n_groups", 8},
                                                        {"ssm_state_size", 128},
                                                        {"conv_kernel", 4},
                                                        {"use_bias", false},
                                                        {"use_conv_bias", true},
                                                        {"mlp_hidden_act", "relu2"},
                                                        {"mlp_bias", false},
                                                        {"layer_norm_epsilon", 1e-5},
                                                        {"n_routed_experts", 128},
                                                        {"num_experts_per_tok", 6},
                                                        {"n_shared_experts", 1},
                                                        {"moe_intermediate_size", 1856},
                                                        {"moe_shared_expert_intermediate_size", 3712},
                                                        {"routed_scaling_factor", 2.5},
                                                        {"n_group", 1},
                                                        {"topk_group", 1},
                                                        {"norm_topk_prob", true}},
                                               .presets = presets});
}  // namespace

}  // namespace apus
