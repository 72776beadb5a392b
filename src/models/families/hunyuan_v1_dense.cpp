// SPDX-License-Identifier: Apache-2.0
// Hunyuan (dense): queries and keys are normalised after they are turned; the rotary base
// is stretched by a fixed number.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::hunyuan_v1_dense {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .eps = 1e-5, .rope = {.alpha = true}});
  spec.attention = {.qkv_bias = c.flag("attention_bias", false),
                    .out_bias = c.flag("attention_bias", false),
                    .qk_norm = QkNorm::HeadAfterRope};
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"hunyuan-0.5b", 1024, 24, 16, 8, 128, 3584, 120818, 262144, 1e4, true},
    {"hunyuan-7b", 4096, 32, 32, 8, 128, 14336, 128167, 262144, 1e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "hunyuan-dense",
    .names = {{"self_attn.query_layernorm", "attn_q_norm"}, {"self_attn.key_layernorm", "attn_k_norm"}}};

const RegisterFamily hunyuan_v1_dense("hunyuan_v1_dense", {.title = "Hunyuan (dense)",
                                                           .architecture = "HunYuanDenseV1ForCausalLM",
                                                           .read = read,
                                                           .says = {{"rms_norm_eps", 1e-5}},
                                                           .presets = presets,
                                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::hunyuan_v1_dense
