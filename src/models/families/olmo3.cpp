// SPDX-License-Identifier: Apache-2.0
// OLMo 3: OLMo 2 with three sliding layers to one full one; rotary scaling acts on full layers only.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::olmo3 {

namespace {
DecoderSpec read(const Config& c) {
  const RopeDefaults full = {.theta = 5e5, .of = RopeOf::FullLayers};
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .eps = 1e-5, .rope = full});
  norms_after_branches(spec);
  spec.attention = {.qkv_bias = c.flag("attention_bias", false),
                    .out_bias = c.flag("attention_bias", false),
                    .qk_norm = QkNorm::AllHeads};
  spec.window = read_windows(c, spec.shape.layers, all_but_every(4));
  const RopeSpec& scaled = spec.ropes[0];
  turn_sliding_layers(spec,
                      {.dim = scaled.dim, .theta = scaled.theta, .original_positions = scaled.original_positions});
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"olmo3-7b", 4096, 32, 32, 32, 0, 11008, 100278, 65536, 5e5, false},
    {"olmo3-32b", 5120, 64, 40, 8, 0, 27648, 100278, 65536, 5e5, false},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) { words::read_windows_of_layers(file, config); }
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  std::vector<bool> slides;
  const Json types = config.value("layer_types", Json::array());
  for (int64_t i = 0; i < config.value("num_hidden_layers", int64_t{0}); ++i)
    slides.push_back(i < std::ssize(types) ? types[static_cast<size_t>(i)] == "sliding_attention" : (i + 1) % 4 != 0);
  out.flags(words::kWindowsOfLayers, slides);
}

const GgufForm gguf = {
    .architecture = "olmo2",
    .claims = [](const GgufSays& file) { return file.integer("attention.sliding_window").value_or(0) > 0; },
    .names = words::norms_around(),
    .keys = {words::window()},
    .read = read_gguf,
    .write = write_gguf};

const RegisterFamily olmo3("olmo3", {.title = "OLMo 3",
                                     .architecture = "Olmo3ForCausalLM",
                                     .read = read,
                                     .says = {{"sliding_window", 4096}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::olmo3
