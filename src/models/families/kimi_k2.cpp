// SPDX-License-Identifier: Apache-2.0
// Kimi K2: DeepSeek-V3 under another name, with more experts and fewer heads.
#include "gguf/words.h"
#include "models/families/deepseek_v3.h"
#include "models/spec/family.h"

namespace apus::families::kimi_k2 {

namespace {
const Json kKimiYarn = {{"type", "yarn"},
                        {"factor", 32.0},
                        {"beta_fast", 1.0},
                        {"beta_slow", 1.0},
                        {"mscale", 1.0},
                        {"mscale_all_dim", 1.0},
                        {"original_max_position_embeddings", 4096}};

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"kimi-k2",
     7168,
     61,
     64,
     64,
     0,
     18432,
     163840,
     131072,
     50000,
     false,
     {},
     {{"n_routed_experts", 384},
      {"first_k_dense_replace", 1},
      {"n_group", 1},
      {"topk_group", 1},
      {"routed_scaling_factor", 2.827},
      {"rope_scaling", kKimiYarn}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "deepseek2",
                       .names = words::both(words::latent_names(), words::shared_experts()),
                       .keys = words::routed_experts(),
                       .read = words::read_latent};

const RegisterFamily kimi_k2("kimi_k2", {.title = "Kimi K2",
                                         .architecture = "DeepseekV3ForCausalLM",
                                         .read = read_deepseek_v3,
                                         .says = deepseek_v3_says(),
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::kimi_k2
