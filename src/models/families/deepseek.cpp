// SPDX-License-Identifier: Apache-2.0
// DeepSeek-MoE (16B), by the code that its files bring: Llama with experts by shares of one, and shared ones.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::deepseek {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .ffn = 11008});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const int64_t width = c.integer("moe_intermediate_size", 1407), dense = c.integer("first_k_dense_replace", 0),
                every = c.integer("moe_layer_freq", 1), experts = c.integer("n_routed_experts", 0);
  require(every > 0 && c.text("scoring_func", "softmax") == "softmax", Fault::Model,
          "config.json: moe_layer_freq must be above 0, and scoring_func softmax");
  if (experts == 0) return spec;
  use_experts(c, spec,
              {.experts = experts,
               .per_token = c.integer("num_experts_per_tok"),
               .ffn = width,
               .shared_ffn = width * c.integer("n_shared_experts", 0),
               .router = {.normalise = c.flag("norm_topk_prob", false)},
               .names = {.shared = "shared_experts", .shared_is_gated = false}},
              [&](int64_t layer) { return layer >= dense && layer % every == 0; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-moe-16b", 2048, 28, 16, 16, 0, 10944, 102400, 4096, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "deepseek",
                       .names = words::shared_experts(),
                       .keys = words::routed_experts(),
                       .says = {{"norm_topk_prob", false}, {"moe_layer_freq", 1}},
                       .neighbours = true};

const RegisterFamily deepseek("deepseek", {.title = "DeepSeek-MoE",
                                           .architecture = "DeepseekForCausalLM",
                                           .read = read,
                                           .says = {{"n_routed_experts", 64},
                                                    {"n_shared_experts", 2},
                                                    {"num_experts_per_tok", 6},
                                                    {"moe_intermediate_size", 1408},
                                                    {"first_k_dense_replace", 1}},
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::deepseek
