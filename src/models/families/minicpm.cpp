// SPDX-License-Identifier: Apache-2.0
// MiniCPM 1, 2 and 4, by the code that their files bring: Llama with scaled embeddings, branches and logits.
#include <cmath>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .tied = true});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.embedding_scale = c.number("scale_emb", 1);
  spec.branch_scale = c.number("scale_depth", 1) / std::sqrt(static_cast<double>(spec.shape.layers));
  spec.logit_scale = c.number("dim_model_base", 1) / static_cast<double>(spec.shape.hidden);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minicpm-1b", 1536, 52, 24, 8, 0, 3840, 73440, 4096, 1e4, true},
    {"minicpm-2b", 2304, 40, 36, 36, 0, 5760, 122753, 4096, 1e4, true},
    {"minicpm4-8b", 4096, 32, 32, 2, 0, 16384, 73448, 32768, 1e4, true},
};

const RegisterFamily minicpm(
    "minicpm", {.title = "MiniCPM 1, 2 and 4",
                .architecture = "MiniCPMForCausalLM",
                .read = read,
                .says = {{"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 256}, {"rms_norm_eps", 1e-5}},
                .presets = presets});
}  // namespace

}  // namespace apus
