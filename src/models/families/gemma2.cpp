// SPDX-License-Identifier: Apache-2.0
// Gemma 2: norms before and after each branch whose weights count from one; attention scores and logits are bent by a
// hyperbolic tangent; every second layer slides.
#include "models/families/gemma2.h"

#include <cmath>

#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gemma2 {

void use_layers(const Config& c, DecoderSpec& spec) {
  spec.act = read_activation(c, "hidden_activation", "gelu_pytorch_tanh");
  spec.norms = {.after_attention = "post_attention_layernorm",
                .before_feed_forward = "pre_feedforward_layernorm",
                .after_feed_forward = "post_feedforward_layernorm"};
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.shape.hidden)), spec.embedding_scale_rounded = true;
}

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4, .positions = 8192, .head_dim = 256, .tied = true});
  use_layers(c, spec);
  spec.norm.kind = NormKind::RmsFromOne;
  spec.attention = {.qkv_bias = c.flag("attention_bias", false),
                    .out_bias = c.flag("attention_bias", false),
                    .scale = 1 / std::sqrt(c.number("query_pre_attn_scalar", 256)),
                    .softcap = read_softcap(c, "attn_logit_softcapping", 50)};
  spec.logit_softcap = read_softcap(c, "final_logit_softcapping", 30);
  spec.window = read_windows(c, spec.shape.layers, all_but_every(2));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma2-2b", 2304, 26, 8, 4, 256, 9216, 256000, 8192, 1e4, true},
    {"gemma2-9b", 3584, 42, 16, 8, 256, 14336, 256000, 8192, 1e4, true},
    {"gemma2-27b", 4608, 46, 32, 16, 128, 36864, 256000, 8192, 1e4, true, {}, {{"query_pre_attn_scalar", 144}}},
};

// How it stands in GGUF files.
// The largest model divides scores by another number than the size of a head.
void read_gguf(const GgufSays&, Json& config) {
  const GgufSizes s = GgufSizes::of_config(config);
  config["query_pre_attn_scalar"] = s.layers == 46 ? s.hidden / s.heads : s.head_dim;
}

const GgufForm gguf = {.architecture = "gemma2",
                       .names = words::norms_around(),
                       .keys = {{"attn_logit_softcapping", "attn_logit_softcapping", GgufKey::Number},
                                {"final_logit_softcapping", "final_logit_softcapping", GgufKey::Number},
                                words::window()},
                       .says = {{"hidden_activation", "gelu_pytorch_tanh"}},
                       .read = read_gguf,
                       .from_one = true};

const RegisterFamily gemma2("gemma2", {.title = "Gemma 2",
                                       .architecture = "Gemma2ForCausalLM",
                                       .read = read,
                                       .says = {{"hidden_activation", "gelu_pytorch_tanh"},
                                                {"query_pre_attn_scalar", 256},
                                                {"attn_logit_softcapping", 50.0},
                                                {"final_logit_softcapping", 30.0},
                                                {"sliding_window", 4096}},
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::gemma2
