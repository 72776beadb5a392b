// SPDX-License-Identifier: Apache-2.0
// Keye-VL 1.5: Keye-VL whose projector normalises cells of four patches.
#include "models/families/keye.h"
#include "models/spec/family.h"

namespace apus::families::KeyeVL1_5 {

namespace {
DecoderSpec read(const Config& c) { return read_keye(c, true); }

// name           hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"keye-vl-1.5-8b", 4096, 36, 32, 8, 128, 12288, 151936, 128000, 5e6, false},
};

const RegisterFamily keye_1_5("KeyeVL1_5", {.title = "Keye-VL 1.5",
                                            .architecture = "KeyeVL1_5ForConditionalGeneration",
                                            .read = read,
                                            .says = keye_says(),
                                            .presets = presets});
}  // namespace

}  // namespace apus::families::KeyeVL1_5
