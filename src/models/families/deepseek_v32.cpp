// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3.2: DeepSeek-V3 whose attention looks at the tokens that an index chooses.
#include "gguf/words.h"
#include "models/families/deepseek_v3.h"
#include "models/spec/family.h"
#include "models/spec/guess_form.h"
#include "models/spec/read_decoder.h"

namespace apus::families::deepseek_v32 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 128, .positions = 163840, .ffn = 18432, .head_dim = latent_turned(c)});
  use_latent_attention(c, spec, /*neighbours=*/true);
  use_index(c, spec, 64, /*neighbours=*/false);
  use_experts(c, spec,
              read_routed_experts(c, {.experts = c.integer("num_experts", 256),
                                      .per_token = 8,
                                      .ffn = 2048,
                                      .scale = 2.5,
                                      .groups = 8,
                                      .open_groups = 4}),
              sparse_layers(c, spec.shape.layers, 3));
  use_layers_ahead(c, spec);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-v3.2",
     7168,
     61,
     128,
     128,
     0,
     18432,
     129280,
     163840,
     1e4,
     false,
     {},
     {{"rope_scaling", deepseek_v3_yarn()}}},
};

// How it stands in GGUF files.
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  out.whole("vocab_size", config.value("vocab_size", int64_t{0}));
}

const GgufForm gguf = {
    .architecture = "deepseek32",
    .names = words::both(words::latent_names(), words::both(words::shared_experts(), words::index_names())),
    .keys = words::both(words::routed_experts(), words::index_keys()),
    .read = words::read_latent,
    .write = write_gguf};

const RegisterFamily deepseek_v32("deepseek_v32", {.title = "DeepSeek-V3.2",
                                                   .architecture = "DeepseekV32ForCausalLM",
                                                   .read = read,
                                                   .says = {{"q_lora_rank", 1536},
                                                            {"kv_lora_rank", 512},
                                                            {"qk_nope_head_dim", 128},
                                                            {"qk_rope_head_dim", 64},
                                                            {"v_head_dim", 128},
                                                            {"index_n_heads", 64},
                                                            {"index_head_dim", 128},
                                                            {"index_topk", 2048},
                                                            {"n_routed_experts", 256},
                                                            {"n_shared_experts", 1},
                                                            {"num_experts_per_tok", 8},
                                                            {"moe_intermediate_size", 2048},
                                                            {"first_k_dense_replace", 3},
                                                            {"n_group", 8},
                                                            {"topk_group", 4},
                                                            {"routed_scaling_factor", 2.5},
                                                            {"norm_topk_prob", true}},
                                                   .presets = presets,
                                                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::deepseek_v32
