// SPDX-License-Identifier: Apache-2.0
// Phi-3.5-MoE: norms with biases; two experts, each by its share among those that lie near it.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::phimoe {

namespace {
// What longrope multiplies sines by stands in the file.
void read_long_scale(const Config& c, RopeSpec& rope) {
  if (rope.type != "longrope") return;
  const Json* said = c.find("rope_scaling") ? c.find("rope_scaling") : c.find("rope_parameters");
  const double within = Config(*said).number("short_mscale", 0), beyond = Config(*said).number("long_mscale", within);
  require(within == beyond, Fault::Model, "config.json: short_mscale ", within, " and long_mscale ", beyond,
          " differ, which is not supported");
  if (within > 0) rope.attention_factor = within;
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 8, .positions = 131072, .ffn = 6400, .eps = 1e-5, .rope = {.theta = 1e6}});
  spec.norm.kind = NormKind::MeanAndBias;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.head_bias = c.flag("lm_head_bias", false);
  if (c.find("sliding_window")) spec.window = read_windows(c, spec.shape.layers, Slides::Always);
  read_long_scale(c, spec.ropes[0]);
  const int64_t chosen = c.integer("num_experts_per_tok", 2);
  require(chosen == 2, Fault::Model, "config.json: num_experts_per_tok is ", chosen, "; this family chooses two");
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 16),
               .per_token = chosen,
               .ffn = c.integer("intermediate_size", 6400),
               .router = {.nearness = c.number("router_jitter_noise", 0.01)},
               .names = {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"phi3.5-moe", 4096, 32, 32, 8, 0, 6400, 32064, 131072, 1e4, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "phimoe",
                       .names = words::both(words::mixtral_experts(), words::mixtral_experts("mlp")),
                       .keys = words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size"),
                       .says = {{"lm_head_bias", true}},
                       .two_factor_sets = true};

const RegisterFamily phimoe("phimoe", {.title = "Phi-3.5-MoE",
                                       .architecture = "PhimoeForCausalLM",
                                       .read = read,
                                       .says = {{"attention_bias", true},
                                                {"lm_head_bias", true},
                                                {"num_local_experts", 16},
                                                {"num_experts_per_tok", 2},
                                                {"router_jitter_noise", 0.01},
                                                {"rms_norm_eps", 1e-5}},
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::phimoe
