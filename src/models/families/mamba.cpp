// SPDX-License-Identifier: Apache-2.0
// Mamba, the first one, alone: layers that are a norm and a selective state.
#include "models/families/mamba.h"

#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

SelectiveForm read_selective(const Config& c, int64_t hidden) {
  const Json* rank = c.find("time_step_rank");
  const bool from_hidden = !rank || rank->is_string();  // auto
  return {.inner = c.integer("intermediate_size", c.integer("expand", 2) * hidden),
          .state = c.integer("state_size", 16),
          .rank = from_hidden ? (hidden + 15) / 16 : c.integer("time_step_rank"),
          .taps = c.integer("conv_kernel", 4),
          .conv_bias = c.flag("use_conv_bias", true),
          .bias = c.flag("use_bias", false)};
}

}  // namespace apus

namespace apus::families::mamba {

namespace {
void read_gguf(const GgufSays& file, Json& config) {
  config["expand"] = file.needed("ssm.inner_size") / config["hidden_size"].get<int64_t>();
  config["use_bias"] = file.tensor("blk.0.ssm_in.bias") != nullptr;
  config["use_conv_bias"] = file.tensor("blk.0.ssm_conv1d.bias") != nullptr;
}
template <bool normed>
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  words::write_without_attention(out);
  out.whole("ssm.inner_size", config.value("intermediate_size", config.value("expand", int64_t{2}) *
                                                                    config.value("hidden_size", int64_t{0})));
  out.own("ssm.dt_b_c_rms", GgufValue::flag(normed));
}
}  // namespace

}  // namespace apus::families::mamba

namespace apus {

GgufForm mamba_gguf(bool normed) {
  return {.architecture = "mamba",
          .names = {{"backbone.embeddings", "token_embd"},
                    {"backbone.norm_f", "output_norm"},
                    {"norm", "attn_norm"},
                    {"mixer.in_proj", "ssm_in"},
                    {"mixer.conv1d", "ssm_conv1d", {.drops_one = true}},
                    {"mixer.x_proj", "ssm_x"},
                    {"mixer.dt_proj", "ssm_dt"},
                    {"mixer.A_log", "ssm_a", {.numbers = GgufTurn::Numbers::MinusExp}},
                    {"mixer.D", "ssm_d"},
                    {"mixer.out_proj", "ssm_out"}},
          .keys = {{"conv_kernel", "ssm.conv_kernel"},
                   {"state_size", "ssm.state_size"},
                   {"time_step_rank", "ssm.time_step_rank"},
                   {"intermediate_size", "ssm.inner_size"}},
          .layers = "backbone.layers.",
          .eps = {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", GgufKey::Number},
          .read = families::mamba::read_gguf,
          .write = normed ? families::mamba::write_gguf<true> : families::mamba::write_gguf<false>};
}

}  // namespace apus

namespace apus::families::mamba {

namespace {
DecoderSpec read(const Config& c) {
  const Json json = in_words_of_attention(c, 1, 2);
  DecoderSpec spec = read_decoder(Config(json), {.positions = 1048576, .tied = true});
  spec.feed_forward.assign(spec.feed_forward.size(), NoFeedForward{});
  use_states(c, spec, read_selective(c, spec.shape.hidden), [](int64_t) { return Keeps::State; });
  spec.forms = {mixer_names("backbone")};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mamba-2.8b", 2560, 64, 1, 1, 0, 5120, 50280, 1048576, 1e4, true},
};

const RegisterFamily mamba("mamba", {.title = "Mamba",
                                     .architecture = "MambaForCausalLM",
                                     .read = read,
                                     .says = {{"state_size", 16},
                                              {"time_step_rank", 160},
                                              {"expand", 2},
                                              {"conv_kernel", 4},
                                              {"use_bias", false},
                                              {"use_conv_bias", true},
                                              {"layer_norm_epsilon", 1e-5}},
                                     .presets = presets,
                                     .gguf = mamba_gguf(false)});
}  // namespace

}  // namespace apus::families::mamba
