// SPDX-License-Identifier: Apache-2.0
// Granite 3 with experts: Granite's four numbers; the experts of a layer are one tensor in the file.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::granitemoe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_multipliers(c, spec);
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 8),
               .per_token = c.integer("num_experts_per_tok", 2),
               .ffn = c.integer("intermediate_size"),
               .router = {.normalise = true},
               .names = {.block = "block_sparse_moe",
                         .router = "router.layer",
                         .stacked_gate_up = "input_linear.weight",
                         .stacked_down = "output_linear.weight"}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"granite3-1b-a400m", 1024, 24, 16, 8, 0, 512, 49155, 4096, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "granitemoe",
    .names = {{"block_sparse_moe.router.layer", "ffn_gate_inp"},
              {"block_sparse_moe.input_linear", "ffn_gate_exps", {.rows = first_half}},
              {"block_sparse_moe.input_linear", "ffn_up_exps", {.rows = second_half}},
              {"block_sparse_moe.output_linear", "ffn_down_exps"}},
    .keys = words::both(words::multipliers(),
                        words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size")),
    .neighbours = true};

const RegisterFamily granitemoe("granitemoe", {.title = "Granite 3 with experts",
                                               .architecture = "GraniteMoeForCausalLM",
                                               .read = read,
                                               .says = {{"num_local_experts", 32},
                                                        {"num_experts_per_tok", 8},
                                                        {"embedding_multiplier", 12.0},
                                                        {"attention_multiplier", 0.015625},
                                                        {"residual_multiplier", 0.22},
                                                        {"logits_scaling", 6.0}},
                                               .presets = presets,
                                               .gguf = gguf});
}  // namespace

}  // namespace apus::families::granitemoe
