// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 with experts: chosen with a correction, shared ones beside them, on the layers that the file names.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::ernie4_5_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 4, .positions = 131072, .tied = true, .eps = 1e-5, .rope = {.theta = 5e5}});
  const bool bias = c.flag("use_bias", false);
  require(!bias, Fault::Model, "config.json: use_bias is not supported with experts; no known checkpoint has it");
  spec.ropes[0].neighbours = true;
  const int64_t every = c.integer("moe_layer_interval", 1), first = c.integer("moe_layer_start_index", 1);
  const double last = c.number("moe_layer_end_index", -1);  // -1: the last one
  require(every > 0, Fault::Model, "config.json: moe_layer_interval must be above 0");
  const int64_t width = c.integer("moe_intermediate_size", 1536);
  use_experts(c, spec,
              {.experts = c.integer("moe_num_experts", 64),
               .per_token = c.integer("moe_k", 6),
               .ffn = width,
               .shared_ffn = width * c.integer("moe_num_shared_experts", 2),
               .router = {.normalise = true},
               .names = {.correction = "moe_statics.e_score_correction_bias",
                         .correction_rows = 1,
                         .shared = "shared_experts",
                         .shared_is_gated = false}},
              [&](int64_t layer) {
                return (layer + 1) % every == 0 && layer >= first && (last < 0 || static_cast<double>(layer) <= last);
              });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ernie4.5-21b-a3b", 2560, 28, 20, 4, 128, 12288, 103424, 131072, 5e5, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "ernie4_5-moe",
    .names = words::both(words::shared_experts(),
                         {{"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", {.drops_one = true}}}),
    .keys = words::both(words::experts("moe_num_experts", "moe_k"),
                        {{"moe_num_shared_experts", "expert_shared_count"},
                         {"moe_layer_interval", "interleave_moe_layer_step"},
                         {"moe_layer_start_index", "leading_dense_block_count"}})};

const RegisterFamily ernie4_5_moe("ernie4_5_moe", {.title = "ERNIE 4.5 with experts",
                                                   .architecture = "Ernie4_5_MoeForCausalLM",
                                                   .read = read,
                                                   .says = {{"rms_norm_eps", 1e-5},
                                                            {"moe_num_experts", 64},
                                                            {"moe_k", 6},
                                                            {"moe_num_shared_experts", 2},
                                                            {"moe_intermediate_size", 1536},
                                                            {"moe_layer_start_index", 1}},
                                                   .presets = presets,
                                                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::ernie4_5_moe
