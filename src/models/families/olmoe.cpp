// SPDX-License-Identifier: Apache-2.0
// OLMoE: queries and keys normalised as wholes, experts in every layer.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::olmoe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096, .ffn = 2048, .eps = 1e-5});
  require(!c.find("clip_qkv"), Fault::Model, "config.json: clip_qkv is not supported; no known checkpoint has it");
  spec.attention.qk_norm = QkNorm::AllHeads;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 64),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = c.integer("intermediate_size", 2048),
               .router = {.normalise = c.flag("norm_topk_prob", false)}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"olmoe-1b-7b", 2048, 16, 16, 16, 0, 1024, 50304, 4096, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "olmoe",
                       .keys = words::experts("num_experts", "num_experts_per_tok", "intermediate_size"),
                       .says = {{"norm_topk_prob", false}}};

const RegisterFamily olmoe(
    "olmoe",
    {.title = "OLMoE",
     .architecture = "OlmoeForCausalLM",
     .read = read,
     .says = {{"num_experts", 64}, {"num_experts_per_tok", 8}, {"norm_topk_prob", false}, {"rms_norm_eps", 1e-5}},
     .presets = presets,
     .gguf = gguf});
}  // namespace

}  // namespace apus::families::olmoe
