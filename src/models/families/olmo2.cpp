// SPDX-License-Identifier: Apache-2.0
// OLMo 2: norms after each branch only; queries and keys are normalised over all heads together.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::olmo2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .eps = 1e-5});
  norms_after_branches(spec);
  spec.attention = {.qkv_bias = c.flag("attention_bias", false),
                    .out_bias = c.flag("attention_bias", false),
                    .qk_norm = QkNorm::AllHeads};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"olmo2-1b", 2048, 16, 16, 16, 0, 8192, 100352, 4096, 5e5, false},
    {"olmo2-7b", 4096, 32, 32, 32, 0, 11008, 100352, 4096, 5e5, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "olmo2", .names = words::norms_around()};

const RegisterFamily olmo2(
    "olmo2", {.title = "OLMo 2", .architecture = "Olmo2ForCausalLM", .read = read, .presets = presets, .gguf = gguf});
}  // namespace

}  // namespace apus::families::olmo2
