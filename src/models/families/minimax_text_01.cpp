// SPDX-License-Identifier: Apache-2.0
// MiniMax-Text-01 as its own files have it.
#include "models/families/minimax.h"
#include "models/spec/family.h"

namespace apus::families::minimax_text_01 {

namespace {
// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minimax-text-01", 6144, 80, 64, 8, 128, 9216, 200064, 10240000, 1e7, false},
};

const RegisterFamily minimax_text_01("minimax_text_01", {.title = "MiniMax-Text-01",
                                                         .architecture = "MiniMaxText01ForCausalLM",
                                                         .read = read_own_minimax,
                                                         .says = own_minimax_says(),
                                                         .presets = presets});
}  // namespace

}  // namespace apus::families::minimax_text_01
