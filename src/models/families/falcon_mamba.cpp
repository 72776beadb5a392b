// SPDX-License-Identifier: Apache-2.0
// Falcon-Mamba: Mamba whose steps, keys and queries are normalised, without weights.
#include "models/families/mamba.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::falcon_mamba {

namespace {
DecoderSpec read(const Config& c) {
  const Json json = in_words_of_attention(c, 1, 2);
  DecoderSpec spec = read_decoder(Config(json), {.positions = 1048576, .tied = true});
  spec.feed_forward.assign(spec.feed_forward.size(), NoFeedForward{});
  SelectiveForm form = read_selective(c, spec.shape.hidden);

  form.norm = SelectiveForm::Norm::Plain, form.eps = c.number("mixer_rms_eps", 1e-6);
  use_states(c, spec, form, [](int64_t) { return Keeps::State; });
  spec.forms = {mixer_names("backbone")};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"falcon-mamba-7b", 4096, 64, 1, 1, 0, 8192, 65024, 1048576, 1e4, false},
};

// How it stands in GGUF files.
GgufForm gguf() {
  GgufForm form = mamba_gguf(true);
  form.claims = [](const GgufSays& file) { return file.flag("ssm.dt_b_c_rms").value_or(false); };
  return form;
}

const RegisterFamily falcon_mamba("falcon_mamba", {.title = "Falcon-Mamba",
                                                   .architecture = "FalconMambaForCausalLM",
                                                   .read = read,
                                                   .says = {{"state_size", 16},
                                                            {"time_step_rank", 256},
                                                            {"expand", 16},
                                                            {"conv_kernel", 4},
                                                            {"use_bias", false},
                                                            {"use_conv_bias", true},
                                                            {"layer_norm_epsilon", 1e-5},
                                                            {"mixer_rms_eps", 1e-6}},
                                                   .presets = presets,
                                                   .gguf = gguf()});
}  // namespace

}  // namespace apus::families::falcon_mamba
