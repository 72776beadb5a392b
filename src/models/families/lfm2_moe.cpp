// SPDX-License-Identifier: Apache-2.0
// LFM2 with experts: chosen by sigmoids, with a correction.
#include "gguf/words.h"
#include "models/families/lfm2.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::lfm2_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_lfm2(c);
  const int64_t dense = c.integer("num_dense_layers", 2);
  use_experts(c, spec,
              {.experts = c.integer("num_experts", 32),
               .per_token = c.integer("num_experts_per_tok", 4),
               .ffn = c.integer("moe_intermediate_size", 1792),
               .router = {.sigmoid = true,
                          .normalise = c.flag("norm_topk_prob", true),
                          .scale = c.number("routed_scaling_factor", 1),
                          .beside_sum = 1e-6},
               .names = {.block = "feed_forward",
                         .correction = c.flag("use_expert_bias", true) ? "expert_bias" : nullptr,
                         .gate = "w1",
                         .up = "w3",
                         .down = "w2"}},
              [&](int64_t layer) { return layer >= dense; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"lfm2-8b-a1b", 2048, 24, 32, 8, 0, 7168, 65536, 128000, 1e6, true},
};

// How it stands in GGUF files.
GgufForm gguf() {
  GgufForm form = lfm2_gguf();
  form.architecture = "lfm2moe";
  form.names = words::both<GgufPair>(form.names, {{"feed_forward.gate", "ffn_gate_inp"},
                                                  {"feed_forward.expert_bias", "exp_probs_b.bias"},
                                                  {"feed_forward.experts.*.w1", "ffn_gate_exps"},
                                                  {"feed_forward.experts.*.w3", "ffn_up_exps"},
                                                  {"feed_forward.experts.*.w2", "ffn_down_exps"}});
  form.keys =
      words::both(words::experts("num_experts"), {{"conv_L_cache", "shortconv.l_cache"},
                                                  {"num_dense_layers", "leading_dense_block_count"},
                                                  {"routed_scaling_factor", "expert_weights_scale", GgufKey::Number},
                                                  {"norm_topk_prob", "expert_weights_norm", GgufKey::Flag}});
  return form;
}

const RegisterFamily lfm2_moe("lfm2_moe", {.title = "LFM2 with experts",
                                           .architecture = "Lfm2MoeForCausalLM",
                                           .read = read,
                                           .says = {{"conv_L_cache", 3},
                                                    {"conv_bias", false},
                                                    {"norm_eps", 1e-5},
                                                    {"num_experts", 32},
                                                    {"num_experts_per_tok", 4},
                                                    {"num_dense_layers", 2},
                                                    {"moe_intermediate_size", 1792},
                                                    {"use_expert_bias", true},
                                                    {"norm_topk_prob", true},
                                                    {"full_attn_idxs", {2, 6, 10, 14, 18, 21}}},
                                           .presets = presets,
                                           .gguf = gguf()});
}  // namespace

}  // namespace apus::families::lfm2_moe
