// SPDX-License-Identifier: Apache-2.0
// MiMo-7B: Qwen2's architecture, with a head that guesses a token ahead.
#include "models/families/qwen2.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"

namespace apus::families::mimo {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_qwen2(c);
  if (c.integer("num_nextn_predict_layers", 0) > 0)
    use_guess_head(spec, {.name = "mtp_layers.0",
                          .token_norm = "token_layernorm",
                          .state_norm = "hidden_layernorm",
                          .join = "input_proj",
                          .end_norm = "final_layernorm",
                          .state_first = true});
  return spec;
}

// name     hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mimo-7b", 4096, 36, 32, 8, 0, 11008, 151680, 32768, 6.4e5, false},
};

const RegisterFamily mimo("mimo", {.title = "MiMo",
                                   .architecture = "MiMoForCausalLM",
                                   .read = read,
                                   .says = {{"use_sliding_window", false}, {"rms_norm_eps", 1e-5}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::mimo
