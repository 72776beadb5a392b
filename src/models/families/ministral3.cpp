// SPDX-License-Identifier: Apache-2.0
// Ministral 3 and Mistral models of its time: Mistral whose queries grow by the logarithm of their position.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::ministral3 {

namespace {
DecoderSpec read_said(const Config& c) {
  const int64_t head_dim = c.json().contains("head_dim") ? 0 : 128;
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8, .positions = 262144, .head_dim = head_dim, .eps = 1e-5});
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* rope = c.find(key); rope && rope->is_object())
      spec.ropes[0].query_beta = Config(*rope).number("llama_4_scaling_beta", spec.ropes[0].query_beta);
  spec.window = read_windows(c, spec.shape.layers, c.find("sliding_window") ? Slides::Always : Slides::Never);
  return spec;
}

DecoderSpec read(const Config& c) {
  if (c.find("rope_parameters") || c.find("rope_scaling")) return read_said(c);
  Json all = c.json();
  all["rope_parameters"] = {{"rope_type", "yarn"},
                            {"rope_theta", c.number("rope_theta", 1e6)},
                            {"factor", 16.0},
                            {"original_max_position_embeddings", 16384},
                            {"beta_fast", 32.0},
                            {"beta_slow", 1.0},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0},
                            {"llama_4_scaling_beta", 0.1}};
  return read_said(Config(all));
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ministral3-3b", 3072, 26, 32, 8, 128, 9216, 131072, 262144, 1e6, true},
    {"ministral3-8b", 4096, 34, 32, 8, 128, 14336, 131072, 262144, 1e6, false},
};

// How it stands in GGUF files.
const char *const kOfYarn = "rope.scaling.yarn_log_multiplier", *const kOfQueries = "attention.temperature_scale";
void read_gguf(const GgufSays& file, Json& config) {
  if (!config.contains("rope_scaling")) return;
  Json& rope = config["rope_scaling"];
  rope["mscale"] = rope["mscale_all_dim"] = file.number(kOfYarn).value_or(0);
  rope["llama_4_scaling_beta"] = file.number(kOfQueries).value_or(0);
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const Json rope = config.value("rope_parameters", config.value("rope_scaling", Json()));
  out.number(kOfYarn, rope.is_object() ? rope.value("mscale_all_dim", 0.0) : 1);
  out.number(kOfQueries, rope.is_object() ? rope.value("llama_4_scaling_beta", 0.0) : 0.1);
}

// (Of other files of this architecture the text is Mistral's.)
const GgufForm gguf = {.architecture = "mistral3",
                       .claims = [](const GgufSays& file) { return file.number(kOfQueries).has_value(); },
                       .read = read_gguf,
                       .write = write_gguf,
                       .neighbours = true};

const RegisterFamily ministral3("ministral3", {.title = "Ministral 3 (text)",
                                               .architecture = "Ministral3ForCausalLM",
                                               .read = read,
                                               .says = {{"rms_norm_eps", 1e-5}},
                                               .presets = presets,
                                               .gguf = gguf});
}  // namespace

}  // namespace apus::families::ministral3
