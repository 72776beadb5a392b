// SPDX-License-Identifier: Apache-2.0
// EXAONE 4: norms after each branch only, normalised heads; where layers slide, the full ones are not told positions.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::exaone4 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .eps = 1e-5});
  norms_after_branches(spec);
  spec.attention.qk_norm = QkNorm::Head;
  const bool never = c.json().contains("sliding_window") && !c.find("sliding_window");  // null
  if (never) return spec;
  spec.window = read_windows(c, spec.shape.layers, all_but_every(read_full_every(c)));
  turn_only(spec, [&](size_t i) { return spec.window[i] > 0; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"exaone4-1.2b", 2048, 30, 32, 8, 64, 4096, 102400, 65536, 1e6, true, {}, {{"sliding_window", nullptr}}},
    {"exaone4-32b", 5120, 64, 40, 8, 128, 27392, 102400, 131072, 1e6, false, {}, {{"sliding_window", 4096}}},
};

// How it stands in GGUF files.
// Only the largest model looks back through windows.
void read_gguf(const GgufSays&, Json& config) {
  if (GgufSizes::of_config(config).layers == 64)
    config["sliding_window_pattern"] = 4;
  else
    config["sliding_window"] = nullptr;
}

const GgufForm gguf = {.architecture = "exaone4",
                       .names = words::norms_around(),
                       .keys = {words::window(), {"vocab_size", "vocab_size"}},
                       .read = read_gguf};

const RegisterFamily exaone4("exaone4", {.title = "EXAONE 4",
                                         .architecture = "Exaone4ForCausalLM",
                                         .read = read,
                                         .says = {{"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::exaone4
