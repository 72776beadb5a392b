// SPDX-License-Identifier: Apache-2.0
// Jamba: Mamba with attention in a few layers, which is not told positions, and experts in every second one.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

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
                                     .presets = presets});
}  // namespace

}  // namespace apus
