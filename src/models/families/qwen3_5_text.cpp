// SPDX-License-Identifier: Apache-2.0
// Qwen3.5's text part alone: Qwen3-Next with dense layers, its delta nets' inputs made by matrices of their own.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus::families::qwen3_5_text {

namespace {
// name                 hidden layers heads kv dim ffn vocab positions theta tied mixture
const std::vector<Preset> presets = {
    {"qwen3.5-9b-text", 4096, 32, 16, 4, 256, 12288, 248320, 262144, 1e7, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "qwen35",
                       .names = words::delta_names(),
                       .keys = words::delta_net(),
                       .read = words::read_delta_net,
                       .write = words::write_delta_net,
                       .turns_in_part = true,
                       .from_one = true};

const RegisterFamily qwen3_5_text("qwen3_5_text", {.title = "Qwen3.5, text part",
                                                   .architecture = "Qwen3_5ForCausalLM",
                                                   .read = read_qwen3_5,
                                                   .says = qwen3_5_says(),
                                                   .presets = presets,
                                                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen3_5_text
