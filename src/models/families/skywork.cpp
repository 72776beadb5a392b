// SPDX-License-Identifier: Apache-2.0
// Skywork 13B, by the code that its files bring: Llama.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::skywork {

namespace {
DecoderSpec read(const Config& c) { return read_decoder(c, {.positions = 4096}); }

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"skywork-13b", 4608, 52, 36, 36, 0, 12288, 65519, 4096, 1e4, false},
};

const RegisterFamily skywork(
    "skywork", {.title = "Skywork 13B", .architecture = "SkyworkForCausalLM", .read = read, .presets = presets});
}  // namespace

}  // namespace apus::families::skywork
