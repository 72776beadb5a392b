// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5: Llama whose heads turn neighbours together; one switch for all biases.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::ernie4_5 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(
      c, {.kv_heads = 2, .positions = 131072, .head_dim = 128, .tied = true, .eps = 1e-5, .rope = {.theta = 5e5}});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("use_bias", false);
  use_kind(spec, FeedForwardKind::Gated, c.flag("use_bias", false));
  spec.ropes[0].neighbours = true;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ernie4.5-0.3b", 1024, 18, 16, 2, 128, 3072, 103424, 131072, 5e5, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "ernie4_5"};

const RegisterFamily ernie4_5("ernie4_5", {.title = "ERNIE 4.5",
                                           .architecture = "Ernie4_5ForCausalLM",
                                           .read = read,
                                           .says = {{"rms_norm_eps", 1e-5}, {"use_bias", false}},
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::ernie4_5
