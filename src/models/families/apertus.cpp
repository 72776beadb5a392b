// SPDX-License-Identifier: Apache-2.0
// Apertus: a plain feed-forward with an activation that has learnt numbers (xielu), norms of queries and keys.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::apertus {

namespace {
DecoderSpec read_said(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 65536, .eps = 1e-5, .rope = {.theta = 12e6}});
  spec.act = read_activation(c, "hidden_act", "xielu");
  spec.norms.before_attention = "attention_layernorm", spec.norms.before_feed_forward = "feedforward_layernorm";
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.attention.qk_norm = QkNorm::Head;
  use_plain(spec, {.up = "up_proj", .down = "down_proj"}, false);
  return spec;
}

DecoderSpec read(const Config& c) {
  if (c.find("rope_parameters") || c.find("rope_scaling")) return read_said(c);
  Json all = c.json();
  all["rope_parameters"] = {{"rope_type", "llama3"},  {"rope_theta", c.number("rope_theta", 12e6)},
                            {"factor", 8.0},          {"original_max_position_embeddings", 8192},
                            {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  return read_said(Config(all));
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"apertus-8b", 4096, 32, 32, 8, 0, 21504, 131072, 65536, 12e6, false},
    {"apertus-70b", 8192, 80, 64, 8, 0, 43008, 131072, 65536, 12e6, false},
};

// How it stands in GGUF files.
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const DecoderSpec spec = read(Config(config));
  out.whole("vocab_size", spec.shape.vocab);
  out.whole("rope.dimension_count", spec.ropes[0].dim);
}

const GgufForm gguf = {.architecture = "apertus",
                       .names = {{"attention_layernorm", "attn_norm"}, {"feedforward_layernorm", "ffn_norm"}},
                       .numbers = {{"mlp.act_fn.alpha_n", "xielu.alpha_n", {1}},
                                   {"mlp.act_fn.alpha_p", "xielu.alpha_p", {1}},
                                   {"mlp.act_fn.beta", "xielu.beta", {}},
                                   {"mlp.act_fn.eps", "xielu.eps", {}}},
                       .says = {{"hidden_act", "xielu"}, {"rope_parameters", {{"rope_type", "default"}}}},
                       .write = write_gguf};

const RegisterFamily apertus("apertus", {.title = "Apertus",
                                         .architecture = "ApertusForCausalLM",
                                         .read = read,
                                         .says = {{"hidden_act", "xielu"}, {"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::apertus
