// SPDX-License-Identifier: Apache-2.0
// Jamba: Mamba with attention in a few layers, which is not told positions, and experts in every second one.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::jamba {

namespace {
// Layers of a period that begins at an offset.
std::function<bool(int64_t)> every(const Config& c, const std::string& of, int64_t period, int64_t offset) {
  period = c.integer((of + "_period").c_str(), period), offset = c.integer((of + "_offset").c_str(), offset);
  require(period > 0 && offset < period, Fault::Model, "config.json: ", of, "_period ", period,
          " must be above 0 and above ", of, "_offset ", offset);
  return [=](int64_t layer) { return layer % period == offset; };
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8, .positions = 262144, .ffn = 14336});
  turn_only(spec, [](size_t) { return false; });
  spec.norms.before_feed_forward = "pre_ff_layernorm";
  spec.final_norm = "final_layernorm", spec.dense_name = "feed_forward";
  const int64_t experts = c.integer("num_experts", 16);
  const auto sparse = every(c, "expert_layer", 2, 1), attends = every(c, "attn_layer", 8, 4);
  if (experts > 1)
    use_experts(c, spec,
                {.experts = experts,
                 .per_token = c.integer("num_experts_per_tok", 2),
                 .ffn = c.integer("intermediate_size", 14336),
                 .names = {.block = "feed_forward", .router = "router"}},
                sparse);
  const Json* rank = c.find("mamba_dt_rank");
  const bool from_hidden = !rank || rank->is_string();  // auto
  const SelectiveForm form{.inner = c.integer("mamba_expand", 2) * spec.shape.hidden,
                           .state = c.integer("mamba_d_state", 16),
                           .rank = from_hidden ? (spec.shape.hidden + 15) / 16 : c.integer("mamba_dt_rank"),
                           .taps = c.integer("mamba_d_conv", 4),
                           .conv_bias = c.flag("mamba_conv_bias", true),
                           .bias = c.flag("mamba_proj_bias", false),
                           .norm = SelectiveForm::Norm::Weighed,
                           .eps = spec.norm.eps};
  use_states(c, spec, form, [&](int64_t layer) { return attends(layer) ? Keeps::Tokens : Keeps::State; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"jamba-mini", 4096, 32, 32, 8, 0, 14336, 65536, 262144, 1e4, false},
};

// How it stands in GGUF files.
// Where the first is, and how far the next one is from it.
void read_period(Json& config, const std::string& of, const std::vector<bool>& there) {
  const auto first = std::find(there.begin(), there.end(), true);
  const auto next = first == there.end() ? first : std::find(first + 1, there.end(), true);
  const int64_t offset = first == there.end() ? 0 : first - there.begin();
  config[of + "_offset"] = offset;
  config[of + "_period"] = next == there.end() ? std::ssize(there) + offset : next - first;
}
void read_gguf(const GgufSays& file, Json& config) {
  config["mamba_expand"] = file.needed("ssm.inner_size") / config["hidden_size"].get<int64_t>();
  config["mamba_conv_bias"] = true;
  read_period(config, "attn_layer", file.layers_with("attn_q.weight"));
  read_period(config, "expert_layer", file.layers_with("ffn_gate_inp.weight"));
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const int64_t hidden = config.value("hidden_size", int64_t{0}),
                period = config.value("attn_layer_period", int64_t{8}),
                offset = config.value("attn_layer_offset", int64_t{4});
  out.whole("ssm.inner_size", config.value("mamba_expand", int64_t{2}) * hidden);
  const Json rank = config.value("mamba_dt_rank", Json());
  if (!rank.is_number()) out.whole("ssm.time_step_rank", (hidden + 15) / 16);
  words::write_layers_of_attention(config, out, [&](int64_t i) { return i % period == offset; });
}

const GgufForm gguf = {.architecture = "jamba",
                       .names = {{"model.final_layernorm", "output_norm"},
                                 {"pre_ff_layernorm", "ffn_norm"},
                                 {"feed_forward.gate_proj", "ffn_gate"},
                                 {"feed_forward.up_proj", "ffn_up"},
                                 {"feed_forward.down_proj", "ffn_down"},
                                 {"feed_forward.router", "ffn_gate_inp"},
                                 {"feed_forward.experts.*.gate_proj", "ffn_gate_exps"},
                                 {"feed_forward.experts.*.up_proj", "ffn_up_exps"},
                                 {"feed_forward.experts.*.down_proj", "ffn_down_exps"},
                                 {"mamba.dt_layernorm", "ssm_dt_norm"},
                                 {"mamba.b_layernorm", "ssm_b_norm"},
                                 {"mamba.c_layernorm", "ssm_c_norm"},
                                 {"mamba.in_proj", "ssm_in"},
                                 {"mamba.conv1d", "ssm_conv1d", {.drops_one = true}},
                                 {"mamba.x_proj", "ssm_x"},
                                 {"mamba.dt_proj", "ssm_dt"},
                                 {"mamba.A_log", "ssm_a", {.numbers = GgufTurn::Numbers::MinusExp}},
                                 {"mamba.D", "ssm_d"},
                                 {"mamba.out_proj", "ssm_out"}},
                       .keys = words::both(words::experts("num_experts", "num_experts_per_tok", "intermediate_size"),
                                           {{"mamba_d_conv", "ssm.conv_kernel"},
                                            {"mamba_d_state", "ssm.state_size"},
                                            {"mamba_dt_rank", "ssm.time_step_rank"}}),
                       .read = read_gguf,
                       .write = write_gguf};

const RegisterFamily jamba("jamba", {.title = "Jamba",
                                     .architecture = "JambaForCausalLM",
                                     .read = read,
                                     .says = {{"num_experts", 16},
                                              {"num_experts_per_tok", 2},
                                              {"expert_layer_period", 2},
                                              {"expert_layer_offset", 1},
                                              {"attn_layer_period", 8},
                                              {"attn_layer_offset", 4},
                                              {"mamba_d_state", 16},
                                              {"mamba_d_conv", 4},
                                              {"mamba_expand", 2},
                                              {"mamba_dt_rank", 256},
                                              {"mamba_conv_bias", true},
                                              {"mamba_proj_bias", false}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::jamba
