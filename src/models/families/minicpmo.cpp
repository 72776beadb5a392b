// SPDX-License-Identifier: Apache-2.0
// MiniCPM-o 2.6 and 4.5: what sees and answers in text, which is MiniCPM-V.
#include "models/families/minicpmv.h"
#include "models/spec/family.h"

namespace apus::families::minicpmo {

namespace {
DecoderSpec read(const Config& c) { return read_minicpmv(c, true); }

// name           hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minicpm-o-2.6", 3584, 28, 28, 4, 0, 18944, 151700, 32768, 1e6, false, {}, {{"version", 2.6}}},
};

const RegisterFamily minicpmo("minicpmo", {.title = "MiniCPM-o (text and images)",
                                           .architecture = "MiniCPMO",
                                           .read = read,
                                           .says = minicpm_vision_says(),
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::minicpmo
