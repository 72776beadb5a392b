// SPDX-License-Identifier: Apache-2.0
// OLMo 1: norms without weights; queries, keys and values kept within a bound in some.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::olmo {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048});
  spec.norm = {.kind = NormKind::MeanAlone, .eps = 1e-5};
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.attention.clip = read_softcap(c, "clip_qkv", 0);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"olmo-1b", 2048, 16, 16, 16, 0, 8192, 50304, 2048, 1e4, true},
    {"olmo-7b", 4096, 32, 32, 32, 0, 11008, 50304, 2048, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "olmo",
                       .keys = {{"clip_qkv", "attention.clamp_kqv", GgufKey::Number}},
                       .eps = words::mean_eps("layer_norm_eps"),
                       .neighbours = true};

const RegisterFamily olmo(
    "olmo", {.title = "OLMo 1", .architecture = "OlmoForCausalLM", .read = read, .presets = presets, .gguf = gguf});
}  // namespace

}  // namespace apus::families::olmo
