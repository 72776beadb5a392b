// SPDX-License-Identifier: Apache-2.0
// Falcon-H1: attention and Mamba-2 side by side in every layer, and numbers that multiply nearly everything.
#include <cmath>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::falcon_h1 {

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

// How it stands in GGUF files.
// Its many numbers are in the weights there.
double number_of(const GgufSizes& s, const char* key) { return s.config->value(key, 1.0); }
double number_of(const GgufSizes& s, const char* key, size_t i) {
  const Json all = s.config->value(key, Json());
  return all.is_array() && i < all.size() ? all[i].get<double>() : 1;
}
std::vector<float> one(double number) { return {static_cast<float>(number)}; }
std::vector<float> of_embedding(const GgufSizes& s, int64_t) { return one(number_of(s, "embedding_multiplier")); }
std::vector<float> of_head(const GgufSizes& s, int64_t) { return one(number_of(s, "lm_head_multiplier")); }
std::vector<float> of_gate(const GgufSizes& s, int64_t) { return one(number_of(s, "mlp_multipliers", 0)); }
std::vector<float> of_down(const GgufSizes& s, int64_t) { return one(number_of(s, "mlp_multipliers", 1)); }
std::vector<float> of_input(const GgufSizes& s, int64_t) { return one(number_of(s, "attention_in_multiplier")); }
std::vector<float> of_keys(const GgufSizes& s, int64_t) {
  return one(number_of(s, "attention_in_multiplier") * number_of(s, "key_multiplier"));
}
std::vector<float> of_result(const GgufSizes& s, int64_t) { return one(number_of(s, "attention_out_multiplier")); }
std::vector<float> of_mixed(const GgufSizes& s, int64_t) { return one(number_of(s, "ssm_out_multiplier")); }
// Gate, values, keys, queries, steps.
std::vector<float> of_mixer(const GgufSizes& s, int64_t rows) {
  const int64_t inner = s.of("mamba_d_ssm", 1024), keys = s.of("mamba_n_groups", 1) * s.of("mamba_d_state", 256);
  std::vector<float> all;
  for (const auto& [i, end] : {std::pair<size_t, int64_t>{0, inner},
                               {1, 2 * inner},
                               {2, 2 * inner + keys},
                               {3, 2 * (inner + keys)},
                               {4, rows}})
    all.resize(static_cast<size_t>(std::clamp(end, std::ssize(all), rows)),
               static_cast<float>(number_of(s, "ssm_in_multiplier") * number_of(s, "ssm_multipliers", i)));
  return all;
}
void read_gguf(const GgufSays& file, Json& config) {
  config["mamba_d_head"] = file.needed("ssm.inner_size") / std::max<int64_t>(1, file.needed("ssm.time_step_rank"));
  config["mamba_rms_norm"] = file.tensor("blk.0.ssm_norm.weight") != nullptr;
  config["mamba_conv_bias"] = file.tensor("blk.0.ssm_conv1d.bias") != nullptr;
}

const GgufForm gguf = {.architecture = "falcon-h1",
                       .names = {{"model.embed_tokens", "token_embd", {.scales = of_embedding}},
                                 {"lm_head", "output", {.scales = of_head}},
                                 {"model.final_layernorm", "output_norm"},
                                 {"pre_ff_layernorm.weight", "ffn_norm"},
                                 {"feed_forward.gate_proj", "ffn_gate", {.scales = of_gate}},
                                 {"feed_forward.up_proj", "ffn_up"},
                                 {"feed_forward.down_proj", "ffn_down", {.scales = of_down}},
                                 {"self_attn.q_proj", "attn_q", {.scales = of_input}},
                                 {"self_attn.k_proj", "attn_k", {.scales = of_keys}},
                                 {"self_attn.v_proj", "attn_v", {.scales = of_input}},
                                 {"self_attn.o_proj", "attn_output", {.scales = of_result}},
                                 {"mamba.in_proj", "ssm_in", {.scales = of_mixer}},
                                 {"mamba.conv1d", "ssm_conv1d", {.drops_one = true}},
                                 {"mamba.dt_bias", "ssm_dt.bias"},
                                 {"mamba.A_log", "ssm_a", {.numbers = GgufTurn::Numbers::MinusExp, .adds_last = true}},
                                 {"mamba.D", "ssm_d", {.adds_last = true}},
                                 {"mamba.norm", "ssm_norm", {.rows_of_one = words::mamba_groups}},
                                 {"mamba.out_proj", "ssm_out", {.scales = of_mixed}}},
                       .keys = {{"mamba_d_conv", "ssm.conv_kernel"},
                                {"mamba_d_ssm", "ssm.inner_size"},
                                {"mamba_d_state", "ssm.state_size"},
                                {"mamba_n_heads", "ssm.time_step_rank"},
                                {"mamba_n_groups", "ssm.group_count"}},
                       .says = {{"mamba_norm_before_gate", false}},
                       .read = read_gguf,

                       .folds_scales = true};

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
                                             .presets = presets,
                                             .gguf = gguf});
}  // namespace

}  // namespace apus::families::falcon_h1
