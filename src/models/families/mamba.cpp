// SPDX-License-Identifier: Apache-2.0
// Mamba, the first one, alone: layers that are a norm and a selective state.
#include "models/families/mamba.h"

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
                                     .presets = presets});
}  // namespace

}  // namespace apus
