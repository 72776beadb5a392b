// SPDX-License-Identifier: Apache-2.0
// Solar Open: Llama with experts in every layer, chosen by sigmoids with a correction, and shared ones beside them.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::solar_open {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 8, .positions = 131072, .ffn = 10240, .head_dim = 128, .eps = 1e-5, .rope = {.theta = 1e6}});
  spec.attention.qkv_bias = c.flag("attention_bias", false);
  use_experts(c, spec, read_routed_experts(c, {.experts = 128, .per_token = 8, .ffn = 1280}),
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"solar-open-100b", 4096, 48, 64, 8, 128, 10240, 196608, 131072, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "glm4moe",
    .names = words::both(words::shared_experts(), {{"post_attention_layernorm", "post_attention_norm"}}),
    .keys = words::routed_experts(),
    .turns_in_part = true};

const RegisterFamily solar_open("solar_open", {.title = "Solar Open",
                                               .architecture = "SolarOpenForCausalLM",
                                               .read = read,
                                               .says = {{"n_routed_experts", 128},
                                                        {"n_shared_experts", 1},
                                                        {"num_experts_per_tok", 8},
                                                        {"moe_intermediate_size", 1280},
                                                        {"routed_scaling_factor", 1.0},
                                                        {"norm_topk_prob", true},
                                                        {"n_group", 1},
                                                        {"topk_group", 1},
                                                        {"rms_norm_eps", 1e-5}},
                                               .presets = presets,
                                               .gguf = gguf});
}  // namespace

}  // namespace apus::families::solar_open
