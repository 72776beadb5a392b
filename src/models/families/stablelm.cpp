// SPDX-License-Identifier: Apache-2.0
// StableLM: norms that take the mean off and have biases, a quarter of each head turned; in larger ones a norm of each
// head, and attention and feed-forward side by side.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::stablelm {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32, .positions = 4096, .rope = {.turned = 0.25}});
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.parallel = c.flag("use_parallel_residual", false);
  if (spec.parallel) spec.norms.before_feed_forward = "";
  spec.attention.qkv_bias = c.flag("use_qkv_bias", false);
  if (c.flag("qk_layernorm", false)) spec.attention.qk_norm = QkNorm::EachHead;
  spec.attention.qk_norm_ending = "_layernorm", spec.attention.qk_norms_apart = true;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"stablelm2-1.6b", 2048, 24, 32, 32, 0, 5632, 100352, 4096, 1e4, false, {}, {{"use_qkv_bias", true}}},
    {"stablelm-3b-4e1t", 2560, 32, 32, 32, 0, 6912, 50304, 4096, 1e4, false},
    {"stablelm2-12b",
     5120,
     40,
     32,
     8,
     0,
     13824,
     100352,
     4096,
     1e4,
     false,
     {},
     {{"qk_layernorm", true}, {"use_parallel_residual", true}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["use_qkv_bias"] = file.tensor("blk.0.attn_q.bias") != nullptr;
  config["qk_layernorm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
}

const GgufForm gguf = {
    .architecture = "stablelm",
    .names = {{"self_attn.q_layernorm.norms.*", "attn_q_norm"}, {"self_attn.k_layernorm.norms.*", "attn_k_norm"}},
    .keys = {{"use_parallel_residual", "use_parallel_residual", GgufKey::Flag}},
    .eps = words::mean_eps("layer_norm_eps"),
    .read = read_gguf,
    .turns_in_part = true};

const RegisterFamily stablelm("stablelm", {.title = "StableLM 2 and 3B",
                                           .architecture = "StableLmForCausalLM",
                                           .read = read,
                                           .says = {{"layer_norm_eps", 1e-5}, {"partial_rotary_factor", 0.25}},
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::stablelm
