// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2: queries and keys normalised as wholes, half of a head turns; experts by sigmoids with a correction.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::minimax_m2 {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t head_dim = c.integer("head_dim", 128);
  const int64_t turned = c.integer("rotary_dim", head_dim);
  require(turned <= head_dim && head_dim > 0, Fault::Model, "config.json: rotary_dim ", turned,
          " is more than head_dim ", head_dim);
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 8,
                       .positions = 196608,
                       .ffn = 1536,
                       .head_dim = 128,
                       .rope = {.theta = 5e6, .turned = static_cast<double>(turned) / static_cast<double>(head_dim)}});
  if (c.flag("use_qk_norm", true)) spec.attention.qk_norm = QkNorm::AllHeads;
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 256),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = c.integer("intermediate_size", 1536),
               .router = {.sigmoid = true, .normalise = true},
               .names = {.block = "block_sparse_moe",
                         .correction = "e_score_correction_bias",
                         .gate = "w1",
                         .up = "w3",
                         .down = "w2"}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minimax-m2", 3072, 62, 48, 8, 128, 1536, 200064, 196608, 5e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "minimax-m2",
    .names = words::both(words::both(words::mixtral_experts(), words::mixtral_experts("mlp")),
                         {{"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"}}),
    .keys = words::both(words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size"),
                        {{"rotary_dim", "rope.dimension_count"}}),
    .turns_in_part = true};

const RegisterFamily minimax_m2(
    "minimax_m2", {.title = "MiniMax-M2",
                   .architecture = "MiniMaxM2ForCausalLM",
                   .read = read,
                   .says = {{"num_local_experts", 256}, {"num_experts_per_tok", 8}, {"partial_rotary_factor", 0.5}},
                   .presets = presets,
                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::minimax_m2
