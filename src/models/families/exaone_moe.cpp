// SPDX-License-Identifier: Apache-2.0
// K-EXAONE: normalised heads; full layers are not told positions; experts by sigmoids and a shared one.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::exaone_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32, .positions = 2048, .ffn = 16384, .eps = 1e-5});
  spec.attention.qk_norm = QkNorm::Head;
  const bool never = c.json().contains("sliding_window") && !c.find("sliding_window");  // null
  if (!never) {
    spec.window = read_windows(c, spec.shape.layers, all_but_every(read_full_every(c)));
    turn_only(spec, [&](size_t i) { return spec.window[i] > 0; });
  }
  const int64_t width = c.integer("moe_intermediate_size", 1024);
  use_experts(
      c, spec,
      {.experts = c.integer("num_experts", 64),
       .per_token = c.integer("num_experts_per_tok", 8),
       .ffn = width,
       .shared_ffn = width * c.integer("num_shared_experts", 1),
       .router = read_sigmoid_router(c, 2.5),
       .names = {.correction = "e_score_correction_bias", .shared = "shared_experts", .shared_is_gated = false}},
      sparse_layers(c, spec.shape.layers, 1));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"k-exaone-236b-a23b", 6144, 48, 64, 8, 128, 18432, 153600, 262144, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "exaone-moe",
    .names = words::both(words::shared_experts(), {{"mlp.e_score_correction_bias", "exp_probs_b.bias"}}),
    .keys =
        words::both(words::experts("num_experts"), {{"num_shared_experts", "expert_shared_count"},
                                                    {"first_k_dense_replace", "leading_dense_block_count"},
                                                    {"n_group", "expert_group_count"},
                                                    {"topk_group", "expert_group_used_count"},
                                                    {"routed_scaling_factor", "expert_weights_scale", GgufKey::Number},
                                                    {"norm_topk_prob", "expert_weights_norm", GgufKey::Flag},
                                                    words::window()}),
    .says = {{"sliding_window_pattern", 4}}};

const RegisterFamily exaone_moe("exaone_moe", {.title = "K-EXAONE",
                                               .architecture = "ExaoneMoeForCausalLM",
                                               .read = read,
                                               .says = {{"num_experts", 128},
                                                        {"num_shared_experts", 1},
                                                        {"num_experts_per_tok", 8},
                                                        {"moe_intermediate_size", 2048},
                                                        {"first_k_dense_replace", 1},
                                                        {"routed_scaling_factor", 2.5},
                                                        {"norm_topk_prob", true},
                                                        {"n_group", 1},
                                                        {"topk_group", 1},
                                                        {"sliding_window", 128},
                                                        {"sliding_window_pattern", "LLLG"},
                                                        {"rms_norm_eps", 1e-5}},
                                               .presets = presets,
                                               .gguf = gguf});
}  // namespace

}  // namespace apus::families::exaone_moe
