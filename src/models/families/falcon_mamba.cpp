// SPDX-License-Identifier: Apache-2.0
// Falcon-Mamba: Mamba whose steps, keys and queries are normalised, without weights.
#include "gguf/words.h"
#include "models/families/mamba.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus {

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
void read_gguf(const GgufSays& file, Json& config) {
  config["expand"] = file.needed("ssm.inner_size") / config["hidden_size"].get<int64_t>();
  config["use_bias"] = file.tensor("blk.0.ssm_in.bias") != nullptr;
  config["use_conv_bias"] = file.tensor("blk.0.ssm_conv1d.bias") != nullptr;
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  words::write_without_attention(out);
  out.whole("ssm.inner_size", config.value("intermediate_size", config.value("expand", int64_t{2}) *
                                                                    config.value("hidden_size", int64_t{0})));
  out.own("ssm.dt_b_c_rms", GgufValue::flag(true));
}

const GgufForm gguf = {.architecture = "mamba",
                       .claims = [](const GgufSays& file) { return file.flag("ssm.dt_b_c_rms").value_or(false); },
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
                       .read = read_gguf,
                       .write = write_gguf};

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
                                                   .gguf = gguf});
}  // namespace

}  // namespace apus
