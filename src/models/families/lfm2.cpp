// SPDX-License-Identifier: Apache-2.0
// LFM2: short convolutions between gates, and attention in a few layers.
#include "models/families/lfm2.h"

#include <algorithm>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

DecoderSpec read_lfm2(const Config& c) {
  Json json = c.json();
  json["rms_norm_eps"] = c.number("norm_eps", 1e-5);
  json["hidden_act"] = "silu";
  if (c.find("block_ff_dim")) json["intermediate_size"] = json["block_ff_dim"];
  DecoderSpec spec = read_decoder(Config(json), {.kv_heads = 8,
                                                 .positions = 128000,
                                                 .ffn = 12288,
                                                 .tied = c.flag("tie_embedding", true),
                                                 .rope = {.theta = 1e6}});
  spec.attention.qk_norm = QkNorm::Head;
  spec.final_norm = "embedding_norm", spec.dense_name = "feed_forward";
  const std::vector<int64_t> full = c.integers("full_attn_idxs");
  const bool all = full.empty();
  const auto types = c.texts("layer_types");
  require(types.empty() || std::ssize(types) == spec.shape.layers, Fault::Model, "config.json: layer_types has ",
          types.size(), " entries, the model ", spec.shape.layers, " layers");
  use_states(
      c, spec,
      ConvForm{.width = spec.shape.hidden, .taps = c.integer("conv_L_cache", 3), .bias = c.flag("conv_bias", false)},
      [&](int64_t layer) {
        const bool attends = types.empty() ? all || std::find(full.begin(), full.end(), layer) != full.end()
                                           : types[static_cast<size_t>(layer)] == "full_attention";
        return attends ? Keeps::Tokens : Keeps::State;
      });
  spec.forms = {{.inside = {{".input_layernorm.", ".operator_norm."},
                            {".post_attention_layernorm.", ".ffn_norm."},
                            {"self_attn.o_proj", "self_attn.out_proj"},
                            {"self_attn.q_norm", "self_attn.q_layernorm"},
                            {"self_attn.k_norm", "self_attn.k_layernorm"},
                            {".gate_proj.", ".w1."},
                            {".up_proj.", ".w3."},
                            {".down_proj.", ".w2."}}}};
  return spec;
}

}  // namespace apus

namespace apus::families::lfm2 {

namespace {
void read_gguf(const GgufSays& file, Json& config) {
  config["block_auto_adjust_ff_dim"] = false;
  const auto convolves = file.layers_with("shortconv.in_proj.bias");
  config["conv_bias"] = std::find(convolves.begin(), convolves.end(), true) != convolves.end();
  words::read_layers_of_attention(file, config, "full_attention", "conv");
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const Json types = config.value("layer_types", Json::array()), full = config.value("full_attn_idxs", Json());
  words::write_layers_of_attention(config, out, [&](int64_t i) {
    return types.empty() ? !full.is_array() || std::find(full.begin(), full.end(), i) != full.end()
                         : words::attends(types, i);
  });
}
}  // namespace

}  // namespace apus::families::lfm2

namespace apus {

GgufForm lfm2_gguf() {
  return {.architecture = "lfm2",
          .names = {{"model.embedding_norm", "token_embd_norm"},
                    {"operator_norm", "attn_norm"},
                    {"ffn_norm", "ffn_norm"},
                    {"feed_forward.w1", "ffn_gate"},
                    {"feed_forward.w3", "ffn_up"},
                    {"feed_forward.w2", "ffn_down"},
                    // As it is called within a model that sees.
                    {"feed_forward.gate_proj", "ffn_gate"},
                    {"feed_forward.up_proj", "ffn_up"},
                    {"feed_forward.down_proj", "ffn_down"},
                    {"conv.conv", "shortconv.conv", {.drops_one = true}},
                    {"conv.in_proj", "shortconv.in_proj"},
                    {"conv.out_proj", "shortconv.out_proj"},
                    {"self_attn.q_layernorm", "attn_q_norm"},
                    {"self_attn.k_layernorm", "attn_k_norm"},
                    {"self_attn.out_proj", "attn_output"}},
          .keys = {{"conv_L_cache", "shortconv.l_cache"}},
          .eps = {"norm_eps", "attention.layer_norm_rms_epsilon", GgufKey::Number},
          .read = families::lfm2::read_gguf,
          .write = families::lfm2::write_gguf};
}

}  // namespace apus

namespace apus::families::lfm2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_lfm2(c);
  int64_t width = c.integer("block_ff_dim", c.integer("intermediate_size", 12288));
  if (c.flag("block_auto_adjust_ff_dim", true)) {
    const double factor = c.number("block_ffn_dim_multiplier", 1);
    const int64_t of = c.integer("block_multiple_of", 256);
    require(of > 0, Fault::Model, "config.json: block_multiple_of must be above 0");
    width = static_cast<int64_t>(factor * static_cast<double>(2 * width / 3));
    width = (width + of - 1) / of * of;
  }
  spec.feed_forward.assign(spec.feed_forward.size(), DenseSpec{.ffn = width});
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"lfm2-1.2b", 2048, 16, 32, 8, 0, 12288, 65536, 128000, 1e6, true},
};

const RegisterFamily lfm2("lfm2", {.title = "LFM2",
                                   .architecture = "Lfm2ForCausalLM",
                                   .read = read,
                                   .says = {{"conv_L_cache", 3},
                                            {"conv_bias", false},
                                            {"norm_eps", 1e-5},
                                            {"block_auto_adjust_ff_dim", true},
                                            {"block_ffn_dim_multiplier", 1.0},
                                            {"block_multiple_of", 256},
                                            {"full_attn_idxs", {2, 5, 8, 10, 12, 14}}},
                                   .presets = presets,
                                   .gguf = lfm2_gguf()});
}  // namespace

}  // namespace apus::families::lfm2
