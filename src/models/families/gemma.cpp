// SPDX-License-Identifier: Apache-2.0
// Gemma 1 and CodeGemma: norms whose weights count from one, gates of gelu, embeddings times the root of the width.
#include <cmath>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gemma {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 16, .positions = 8192, .head_dim = 256, .tied = true});
  // The first files say gelu and mean the approximation.
  const std::string said = c.text("hidden_activation", c.text("hidden_act", "gelu"));
  spec.act = said == "gelu" ? Activation::GeluTanh
                            : read_activation(c, c.find("hidden_activation") ? "hidden_activation" : "hidden_act");
  spec.norm.kind = NormKind::RmsFromOne;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.shape.hidden)), spec.embedding_scale_rounded = true;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma-2b", 2048, 18, 8, 1, 256, 16384, 256000, 8192, 1e4, true},
    {"gemma-7b", 3072, 28, 16, 16, 256, 24576, 256000, 8192, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "gemma", .says = {{"hidden_activation", "gelu_pytorch_tanh"}}, .from_one = true};

const RegisterFamily gemma("gemma", {.title = "Gemma 1, CodeGemma",
                                     .architecture = "GemmaForCausalLM",
                                     .read = read,
                                     .says = {{"hidden_act", "gelu_pytorch_tanh"}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::gemma
