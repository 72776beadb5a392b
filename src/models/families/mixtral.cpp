// SPDX-License-Identifier: Apache-2.0
// Mixtral: Mistral with experts in every layer, under names of their own.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::mixtral {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 8, .positions = 131072, .ffn = 14336, .eps = 1e-5, .rope = {.theta = 1e6}});
  spec.window = read_windows(c, spec.shape.layers, c.find("sliding_window") ? Slides::Always : Slides::Never);
  use_experts(c, spec,
              {.experts = c.integer("num_local_experts", 8),
               .per_token = c.integer("num_experts_per_tok", 2),
               .ffn = c.integer("intermediate_size", 14336),
               .router = {.normalise = true},
               .names = {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mixtral-8x7b", 4096, 32, 32, 8, 0, 14336, 32000, 32768, 1e6, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "llama",
                       .claims = [](const GgufSays& file) { return file.integer("expert_count").value_or(0) > 0; },
                       .names = words::both(words::mixtral_experts(), words::mixtral_experts("mlp")),
                       .keys = words::experts("num_local_experts", "num_experts_per_tok", "intermediate_size"),
                       .says = {{"sliding_window", nullptr}},
                       .neighbours = true};

const RegisterFamily mixtral("mixtral", {.title = "Mixtral",
                                         .architecture = "MixtralForCausalLM",
                                         .read = read,
                                         .says = {{"num_local_experts", 8},
                                                  {"num_experts_per_tok", 2},
                                                  {"sliding_window", nullptr},
                                                  {"rms_norm_eps", 1e-5}},
                                         .presets = presets,
                                         .gguf = gguf});
}  // namespace

}  // namespace apus::families::mixtral
