// SPDX-License-Identifier: Apache-2.0
// Falcon-H1: attention and Mamba-2 side by side in every layer, and numbers that multiply nearly everything.
#include <cmath>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

namespace {
// Absent or null: ones.
std::vector<double> factors(const Config& c, const char* key, size_t count) {
  std::vector<double> values = c.numbers(key);
  if (values.empty()) values.assign(count, 1);
  require(values.size() == count, Fault::Model, "config.json: '", key, "' has ", values.size(), " numbers, not ",
          count);
  return values;
}

MambaForm read_mixer(const Config& c, int64_t hidden) {
  MambaForm form = read_mamba(
      c, {.inner = c.find("mamba_d_ssm") || !c.json().contains("mamba_d_ssm") ? c.integer("mamba_d_ssm", 1024)
                                                                              : c.integer("mamba_expand", 2) * hidden});
  form.out_bias = c.flag("projectors_bias", false);
  form.norm = !c.flag("mamba_rms_norm", false)         ? MambaForm::Norm::None
              : c.flag("mamba_norm_before_gate", true) ? MambaForm::Norm::BeforeGate
                                                       : MambaForm::Norm::BehindGate;
  form.norm_groups = form.groups;
  form.in_scale = c.number("ssm_in_multiplier", 1), form.out_scale = c.number("ssm_out_multiplier", 1);
  const auto parts = factors(c, "ssm_multipliers", form.part_scale.size());
  std::copy(parts.begin(), parts.end(), form.part_scale.begin());
  return form;
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8, .positions = 8192, .ffn = 14336, .mlp_bias = true, .eps = 1e-5});
  AttentionForm& attention = spec.attention;
  attention.qkv_bias = attention.out_bias = c.flag("attention_bias", false);
  attention.in_scale = c.number("attention_in_multiplier", 1);
  attention.out_scale = c.number("attention_out_multiplier", 1);
  // Keys times a number: so are the scores.
  const double keys = c.number("key_multiplier", 1);
  require(keys > 0, Fault::Model, "config.json: 'key_multiplier' must be above 0, it is ", keys);
  attention.scale = keys / std::sqrt(static_cast<double>(spec.shape.head_dim));
  spec.embedding_scale = c.number("embedding_multiplier", 1), spec.logit_scale = c.number("lm_head_multiplier", 1);
  const auto mlp = factors(c, "mlp_multipliers", 2);
  for (FeedForwardSpec& each : spec.feed_forward)
    std::get<DenseSpec>(each).gate_scale = mlp[0], std::get<DenseSpec>(each).out_scale = mlp[1];
  spec.norms.before_feed_forward = "pre_ff_layernorm";
  spec.final_norm = "final_layernorm", spec.dense_name = "feed_forward";
  use_states(c, spec, read_mixer(c, spec.shape.hidden), [](int64_t) { return Keeps::Both; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied. Its own multipliers are not known here.
const std::vector<Preset> presets = {
    {"falcon-h1-0.5b", 1024, 36, 8, 2, 64, 2048, 32784, 16384, 1e11, false},
};

const RegisterFamily falcon_h1("falcon_h1", {.title = "Falcon-H1",
                                             .architecture = "FalconH1ForCausalLM",
                                             .read = read,
                                             .says = {{"mamba_d_ssm", 1536},
                                                      {"mamba_n_heads", 24},
                                                      {"mamba_d_head", 64},
                                                      {"mamba_n_groups", 1},
                                                      {"mamba_d_state", 128},
                                                      {"mamba_d_conv", 4},
                                                      {"mamba_expand", 2},
                                                      {"mamba_conv_bias", true},
                                                      {"mamba_proj_bias", false},
                                                      {"mamba_rms_norm", false},
                                                      {"rms_norm_eps", 1e-5}},
                                             .presets = presets});
}  // namespace

}  // namespace apus
