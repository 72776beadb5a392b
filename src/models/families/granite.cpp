// SPDX-License-Identifier: Apache-2.0
// Granite 3: Llama with four numbers, which multiply embeddings, scores, branches and divide the logits.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::granite {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .mlp_bias = true});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_multipliers(c, spec);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"granite3.3-2b", 2048, 40, 32, 8, 0, 8192, 49159, 131072, 1e7, true, {}, {{"attention_multiplier", 0.015625}}},
    {"granite3.3-8b", 4096, 40, 32, 8, 0, 12800, 49159, 131072, 1e7, true, {}, {{"attention_multiplier", 0.0078125}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "granite",
                       .keys = {{"attention_multiplier", "attention.scale", GgufKey::Number},
                                {"embedding_multiplier", "embedding_scale", GgufKey::Number},
                                {"residual_multiplier", "residual_scale", GgufKey::Number},
                                {"logits_scaling", "logit_scale", GgufKey::Number}},
                       .neighbours = true};

const RegisterFamily granite("granite", {.title = "Granite 3",
                                         .architecture = "GraniteForCausalLM",
                                         .read = read,
                                         .says = {{"embedding_multiplier", 12.0},
                                                  {"residual_multiplier", 0.22},
                                                  {"logits_scaling", 8.0},
                                                  {"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::granite
