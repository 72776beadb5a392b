// SPDX-License-Identifier: Apache-2.0
// Granite with experts and a shared one beside them: the four numbers, the experts of a layer one tensor.
#include "models/families/granitemoeshared.h"

#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus {

MixtureSpec granite_mixture(const Config& c, int64_t width, int64_t shared) {
  return {.experts = c.integer("num_local_experts", 8),
          .per_token = c.integer("num_experts_per_tok", 2),
          .ffn = width,
          .shared_ffn = c.integer("shared_intermediate_size", shared),
          .router = {.normalise = true},
          .names = {.block = "",
                    .router = "block_sparse_moe.router.layer",
                    .stacked_gate_up = "block_sparse_moe.input_linear.weight",
                    .stacked_down = "block_sparse_moe.output_linear.weight",
                    .shared = "shared_mlp",
                    .shared_is_gated = false,
                    .shared_kind = FeedForwardKind::FusedGate,
                    .of_shared = {.up = "input_linear", .down = "output_linear"}}};
}

std::vector<GgufPair> granite_gguf_names() {
  return {{"block_sparse_moe.router.layer", "ffn_gate_inp"},
          {"block_sparse_moe.input_linear", "ffn_gate_exps", {.rows = first_half}},
          {"block_sparse_moe.input_linear", "ffn_up_exps", {.rows = second_half}},
          {"block_sparse_moe.output_linear", "ffn_down_exps"},
          {"shared_mlp.input_linear", "ffn_gate_shexp", {.rows = first_half}},
          {"shared_mlp.input_linear", "ffn_up_shexp", {.rows = second_half}},
          {"shared_mlp.output_linear", "ffn_down_shexp"}};
}
std::vector<GgufKey> granite_gguf_keys() {
  return words::both(words::both(words::multipliers(),
                                 words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size")),
                     {{"shared_intermediate_size", "expert_shared_feed_forward_length"}});
}

}  // namespace apus

namespace apus::families::granitemoeshared {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .ffn = 8192});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_multipliers(c, spec);
  use_experts(c, spec, granite_mixture(c, c.integer("intermediate_size", 8192), 0), [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"granite3-7b-a1b-shared", 1536, 40, 24, 8, 0, 512, 49155, 4096, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "granitemoe",
    .claims = [](const GgufSays& file) { return file.integer("expert_shared_feed_forward_length").value_or(0) > 0; },
    .names = granite_gguf_names(),
    .keys = granite_gguf_keys(),
    .neighbours = true};

const RegisterFamily granitemoeshared("granitemoeshared", {.title = "Granite 3 with a shared expert",
                                                           .architecture = "GraniteMoeSharedForCausalLM",
                                                           .read = read,
                                                           .says = {{"num_local_experts", 62},
                                                                    {"num_experts_per_tok", 6},
                                                                    {"shared_intermediate_size", 1024},
                                                                    {"embedding_multiplier", 12.0},
                                                                    {"attention_multiplier", 0.015625},
                                                                    {"residual_multiplier", 0.22},
                                                                    {"logits_scaling", 6.0}},
                                                           .presets = presets,
                                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::granitemoeshared
