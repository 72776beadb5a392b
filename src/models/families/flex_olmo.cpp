// SPDX-License-Identifier: Apache-2.0
// FlexOlmo: OLMo 2 with experts in every layer.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::flex_olmo {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096, .ffn = 11008, .rope = {.theta = 5e5}});
  norms_after_branches(spec);
  spec.attention.qk_norm = QkNorm::AllHeads;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 7),
               .per_token = c.integer("num_experts_per_tok", 5),
               .ffn = c.integer("intermediate_size", 11008),
               .router = {.normalise = c.flag("norm_topk_prob", false)}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"flexolmo-7x7b", 4096, 32, 32, 32, 0, 11008, 100352, 4096, 5e5, false},
};

const RegisterFamily flex_olmo("flex_olmo",
                               {.title = "FlexOlmo",
                                .architecture = "FlexOlmoForCausalLM",
                                .read = read,
                                .says = {{"num_experts", 7}, {"num_experts_per_tok", 5}, {"norm_topk_prob", false}},
                                .presets = presets});
}  // namespace

}  // namespace apus::families::flex_olmo
