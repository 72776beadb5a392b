// SPDX-License-Identifier: Apache-2.0
// Mamba-2 alone: layers that are a norm and a Mamba-2 mixer.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::mamba2 {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t heads = c.integer("num_heads", 128), head_dim = c.integer("head_dim", 64);
  const Json json = in_words_of_attention(c, heads, head_dim);
  DecoderSpec spec = read_decoder(Config(json), {.positions = 1048576});
  spec.feed_forward.assign(spec.feed_forward.size(), NoFeedForward{});
  const int64_t groups = c.integer("n_groups", 8), inner = c.integer("expand", 2) * spec.shape.hidden;
  const bool bias = c.flag("use_bias", false);
  // The upper one is infinite, which newer files write as an object.
  const Json* limits = c.find("time_step_limit");
  const bool limited = limits && limits->is_array() && !limits->empty() && (*limits)[0].is_number();
  require(heads * head_dim == inner, Fault::Model, "config.json: num_heads ", heads, " times head_dim ", head_dim,
          " should be the ", inner, " values of a Mamba layer");
  use_states(c, spec,
             MambaForm{.heads = heads,
                       .head_dim = head_dim,
                       .groups = groups,
                       .state = c.integer("state_size", 128),
                       .taps = c.integer("conv_kernel", 4),
                       .conv_bias = c.flag("use_conv_bias", true),
                       .in_bias = bias,
                       .out_bias = bias,
                       .norm_groups = groups,
                       .least_step = limited ? (*limits)[0].get<double>() : 0},
             [](int64_t) { return Keeps::State; });
  spec.forms = {mixer_names("backbone")};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mamba2-2.7b", 2560, 64, 80, 80, 64, 0, 50288, 1048576, 1e4, true},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  const int64_t inner = file.needed("ssm.inner_size");
  config["expand"] = inner / config["hidden_size"].get<int64_t>();
  config["head_dim"] = inner / std::max<int64_t>(1, file.needed("ssm.time_step_rank"));
  config["use_bias"] = file.tensor("blk.0.ssm_in.bias") != nullptr;
  config["use_conv_bias"] = file.tensor("blk.0.ssm_conv1d.bias") != nullptr;
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  words::write_without_attention(out);
  out.whole("ssm.inner_size", config.value("expand", int64_t{2}) * config.value("hidden_size", int64_t{0}));
}

const GgufForm gguf = {
    .architecture = "mamba2",
    .names = words::both<GgufPair>(
        {{"backbone.embeddings", "token_embd"}, {"backbone.norm_f", "output_norm"}, {"norm", "attn_norm"}},
        words::mamba_names("mixer")),
    .keys = {{"conv_kernel", "ssm.conv_kernel"},
             {"state_size", "ssm.state_size"},
             {"num_heads", "ssm.time_step_rank"},
             {"n_groups", "ssm.group_count"}},
    .layers = "backbone.layers.",
    .eps = {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", GgufKey::Number},
    .read = read_gguf,
    .write = write_gguf};

const RegisterFamily mamba2("mamba2", {.title = "Mamba-2",
                                       .architecture = "Mamba2ForCausalLM",
                                       .read = read,
                                       .says = {{"num_heads", 80},
                                                {"n_groups", 1},
                                                {"state_size", 128},
                                                {"expand", 2},
                                                {"conv_kernel", 4},
                                                {"use_bias", false},
                                                {"use_conv_bias", true},
                                                {"layer_norm_epsilon", 1e-5}},
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::mamba2
