// SPDX-License-Identifier: Apache-2.0
// InternLM 3: Llama with a switch for the biases of q, k, v and one for the others. Known from the code that its files
// bring, not from transformers.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::internlm3 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 2, .head_dim = 128});
  spec.attention.qkv_bias = c.flag("qkv_bias", false), spec.attention.out_bias = c.flag("bias", false);
  use_kind(spec, FeedForwardKind::Gated, c.flag("bias", false));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"internlm3-8b", 4096, 48, 32, 2, 128, 10240, 128512, 32768, 5e7, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "llama",
                       .claims = [](const GgufSays&) { return false; },  // files are read as Llama's
                       .neighbours = true};

const RegisterFamily internlm3("internlm3", {.title = "InternLM 3",
                                             .architecture = "InternLM3ForCausalLM",
                                             .read = read,
                                             .says = {{"rms_norm_eps", 1e-5}, {"qkv_bias", false}, {"bias", false}},
                                             .presets = presets,
                                             .gguf = gguf});
}  // namespace

}  // namespace apus::families::internlm3
