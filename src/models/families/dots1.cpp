// SPDX-License-Identifier: Apache-2.0
// dots.llm1: normalised heads; experts by sigmoids with a correction, and shared ones beside them.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::dots1 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32, .positions = 2048, .ffn = 10944});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const int64_t slides_from = c.integer("max_window_layers", 62);
  spec.window = read_windows(c, spec.shape.layers, [&](int64_t layer) { return layer >= slides_from; });
  use_experts(c, spec, read_routed_experts(c, {.ffn = 1408, .shared = 0, .normalise = false}),
              sparse_layers(c, spec.shape.layers, 0));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"dots.llm1", 4096, 62, 32, 32, 128, 10944, 152064, 32768, 1e7, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "dots1", .names = words::shared_experts(), .keys = words::routed_experts()};

const RegisterFamily dots1("dots1", {.title = "dots.llm1",
                                     .architecture = "Dots1ForCausalLM",
                                     .read = read,
                                     .says = {{"n_routed_experts", 128},
                                              {"n_shared_experts", 2},
                                              {"num_experts_per_tok", 6},
                                              {"moe_intermediate_size", 1408},
                                              {"first_k_dense_replace", 1},
                                              {"norm_topk_prob", true},
                                              {"routed_scaling_factor", 2.5},
                                              {"n_group", 1},
                                              {"topk_group", 1},
                                              {"sliding_window", nullptr},
                                              {"rms_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::dots1
