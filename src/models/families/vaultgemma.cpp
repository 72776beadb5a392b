// SPDX-License-Identifier: Apache-2.0
// VaultGemma: Gemma 2 with norms before the branches only.
#include <cmath>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::vaultgemma {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4, .positions = 8192, .head_dim = 256, .tied = true});
  spec.act = read_activation(c, "hidden_activation", "gelu_pytorch_tanh");
  spec.norm.kind = NormKind::RmsFromOne;
  spec.norms.before_feed_forward = "pre_feedforward_layernorm";
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.attention.scale = 1 / std::sqrt(c.number("query_pre_attn_scalar", 256));
  spec.attention.softcap = read_softcap(c, "attn_logit_softcapping", 50);
  spec.logit_softcap = read_softcap(c, "final_logit_softcapping", 30);
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.shape.hidden)), spec.embedding_scale_rounded = true;
  spec.window = read_windows(c, spec.shape.layers, all_but_every(2));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"vaultgemma-1b", 1152, 26, 4, 4, 256, 6912, 256000, 1024, 1e4, true},
};

const RegisterFamily vaultgemma("vaultgemma", {.title = "VaultGemma",
                                               .architecture = "VaultGemmaForCausalLM",
                                               .read = read,
                                               .says = {{"hidden_activation", "gelu_pytorch_tanh"},
                                                        {"query_pre_attn_scalar", 256},
                                                        {"attn_logit_softcapping", nullptr},
                                                        {"final_logit_softcapping", nullptr},
                                                        {"sliding_window", 512}},
                                               .presets = presets});
}  // namespace

}  // namespace apus::families::vaultgemma
