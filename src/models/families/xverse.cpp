// SPDX-License-Identifier: Apache-2.0
// XVERSE, by the code that its files bring: Llama.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::xverse {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = in_usual_words(c, {{"max_tokenizer_truncation", "max_position_embeddings"}});
  return read_decoder(Config(all), {.positions = 8192});
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"xverse-7b", 4096, 32, 32, 32, 0, 11008, 100534, 8192, 1e4, false},
    {"xverse-13b", 5120, 40, 40, 40, 0, 13824, 100534, 8192, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "xverse", .neighbours = true};

const RegisterFamily xverse(
    "xverse", {.title = "XVERSE", .architecture = "XverseForCausalLM", .read = read, .presets = presets, .gguf = gguf});
}  // namespace

}  // namespace apus::families::xverse
