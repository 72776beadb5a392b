// SPDX-License-Identifier: Apache-2.0
// Nemotron-H and Nemotron 3: every layer is one of Mamba-2, attention that is not told positions, a feed-forward,
// experts; those square what relu leaves.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::nemotron_h {

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

// How it stands in GGUF files. What a layer is, its tensors say.
void read_gguf(const GgufSays& file, Json& config) {
  const auto states = file.layers_with("ssm_a"), attend = file.layers_with("attn_k.weight"),
             mixtures = file.layers_with("ffn_gate_inp.weight");
  Json types = Json::array();
  config["use_conv_bias"] = false;
  for (size_t i = 0; i < states.size(); ++i) {
    types.push_back(states[i] ? "linear_attention" : attend[i] ? "full_attention" : mixtures[i] ? "moe" : "mlp");
    if (file.tensor(str("blk.", i, ".ssm_conv1d.bias"))) config["use_conv_bias"] = true;
    if (file.tensor(str("blk.", i, ".ffn_down.bias"))) config["mlp_bias"] = true;
    if (file.tensor(str("blk.", i, ".attn_q.bias"))) config["attention_bias"] = true;
  }
  config["layers_block_type"] = std::move(types);
  config["mamba_head_dim"] = file.needed("ssm.inner_size") / std::max<int64_t>(1, file.needed("ssm.time_step_rank"));
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const DecoderSpec spec = read(Config(config));
  GgufValue::Integers widths, heads;
  for (int64_t i = 0; i < spec.shape.layers; ++i) {
    const FeedForwardSpec& each = spec.feed_forward[static_cast<size_t>(i)];
    const auto* dense = std::get_if<DenseSpec>(&each);
    const auto* mixture = std::get_if<MixtureSpec>(&each);
    widths.push_back(dense ? dense->ffn : mixture ? mixture->ffn : 0);
    heads.push_back(spec.shape.keeps_in(i) == Keeps::Tokens ? spec.shape.kv_heads : 0);
  }
  out.own("feed_forward_length", GgufValue::list(GgufKind::I32, std::move(widths)));
  out.own("attention.head_count_kv", GgufValue::list(GgufKind::I32, std::move(heads)));
  const auto& mamba = std::get<MambaForm>(*spec.state);
  out.whole("ssm.inner_size", mamba.heads * mamba.head_dim);
  out.own("rope.scaling.finetuned", GgufValue::flag(false));  // no layer is told positions
  for (const char* name : {"rope.freq_base", "leading_dense_block_count"}) out.drop(name);
}

std::vector<GgufPair> gguf_names() {
  return words::both(words::mamba_names("mixer"), {{"backbone.embeddings", "token_embd"},
                                                   {"backbone.norm_f", "output_norm"},
                                                   {"norm", "attn_norm"},
                                                   {"mixer.q_proj", "attn_q"},
                                                   {"mixer.k_proj", "attn_k"},
                                                   {"mixer.v_proj", "attn_v"},
                                                   {"mixer.o_proj", "attn_output"},
                                                   {"mixer.up_proj", "ffn_up"},
                                                   {"mixer.down_proj", "ffn_down"},
                                                   {"mixer.gate", "ffn_gate_inp"},
                                                   {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                                   {"mixer.experts.*.up_proj", "ffn_up_exps"},
                                                   {"mixer.experts.*.down_proj", "ffn_down_exps"},
                                                   {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
                                                   {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
                                                   {"mixer.fc1_latent_proj", "ffn_latent_down"},
                                                   {"mixer.fc2_latent_proj", "ffn_latent_up"}});
}

GgufForm gguf() {
  return {.architecture = "nemotron_h",
          .names = gguf_names(),
          .keys = words::both(words::routed_experts(),
                              {{"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
                               {"moe_latent_size", "moe_latent_size"},
                               {"conv_kernel", "ssm.conv_kernel"},
                               {"ssm_state_size", "ssm.state_size"},
                               {"n_groups", "ssm.group_count"},
                               {"mamba_num_heads", "ssm.time_step_rank"}}),
          .with_experts = "nemotron_h_moe",
          .layers = "backbone.layers.",
          .eps = words::mean_eps("layer_norm_epsilon"),
          .says = {{"mlp_hidden_act", "relu2"}, {"use_bias", false}},
          .read = read_gguf,
          .write = write_gguf,
          .neighbours = true};
}

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
                                               .presets = presets,
                                               .gguf = gguf()});
}  // namespace

}  // namespace apus::families::nemotron_h
