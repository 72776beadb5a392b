// SPDX-License-Identifier: Apache-2.0
// Seed-OSS: Llama with biases on q, k, v, and one switch each for those of the output projection and the feed-forward.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::seed_oss {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t head_dim = c.json().contains("head_dim") ? 0 : 128;  // null: hidden / heads
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8, .positions = 524288, .head_dim = head_dim, .mlp_bias = true});
  spec.attention.qkv_bias = c.flag("attention_bias", true);
  spec.attention.out_bias = c.flag("attention_out_bias", false);
  return spec;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"seed-oss-36b", 5120, 64, 80, 8, 128, 27648, 155136, 524288, 1e7, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "seed_oss", .names = {{"post_attention_layernorm", "post_attention_norm"}}};

const RegisterFamily seed_oss("seed_oss", {.title = "Seed-OSS",
                                           .architecture = "SeedOssForCausalLM",
                                           .read = read,
                                           .says = {{"attention_bias", true}, {"attention_out_bias", false}},
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::seed_oss
