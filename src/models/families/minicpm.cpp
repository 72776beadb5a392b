// SPDX-License-Identifier: Apache-2.0
// MiniCPM 1, 2 and 4, by the code that their files bring: Llama with scaled embeddings, branches and logits.
#include <cmath>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::minicpm {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .tied = true});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.embedding_scale = c.number("scale_emb", 1);
  spec.branch_scale = c.number("scale_depth", 1) / std::sqrt(static_cast<double>(spec.shape.layers));
  spec.logit_scale = c.number("dim_model_base", 1) / static_cast<double>(spec.shape.hidden);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minicpm-1b", 1536, 52, 24, 8, 0, 3840, 73440, 4096, 1e4, true},
    {"minicpm-2b", 2304, 40, 36, 36, 0, 5760, 122753, 4096, 1e4, true},
    {"minicpm4-8b", 4096, 32, 32, 2, 0, 16384, 73448, 32768, 1e4, true},
};

// How it stands in GGUF files.
// The file has the numbers that these come to.
void read_gguf(const GgufSays& file, Json& config) {
  const GgufSizes s = GgufSizes::of_config(config);
  const double layers = std::sqrt(static_cast<double>(s.layers)), hidden = static_cast<double>(s.hidden);
  config["scale_emb"] = file.number("embedding_scale").value_or(12);
  config["scale_depth"] = file.number("residual_scale").value_or(1.4 / layers) * layers;
  config["dim_model_base"] = hidden / file.number("logit_scale").value_or(hidden / 256);
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  const double layers = std::sqrt(config.value("num_hidden_layers", 1.0));
  out.number("embedding_scale", config.value("scale_emb", 1.0));
  out.number("residual_scale", config.value("scale_depth", 1.0) / layers);
  out.number("logit_scale", config.value("hidden_size", 1.0) / config.value("dim_model_base", 1.0));
}

const GgufForm gguf = {.architecture = "minicpm", .read = read_gguf, .write = write_gguf, .neighbours = true};

const RegisterFamily minicpm(
    "minicpm", {.title = "MiniCPM 1, 2 and 4",
                .architecture = "MiniCPMForCausalLM",
                .read = read,
                .says = {{"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 256}, {"rms_norm_eps", 1e-5}},
                .presets = presets,
                .gguf = gguf});
}  // namespace

}  // namespace apus::families::minicpm
