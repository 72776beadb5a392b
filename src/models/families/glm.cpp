// SPDX-License-Identifier: Apache-2.0
// GLM-4 (2024) and GLM-Edge: gate and up in one matrix, half of each head turned, neighbours together.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::glm {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = 2, .positions = 131072, .head_dim = 128, .eps = 1.5625e-7, .rope = {.turned = 0.5}});
  spec.attention.qkv_bias = c.flag("attention_bias", true);
  spec.ropes[0].neighbours = true;
  use_kind(spec, FeedForwardKind::FusedGate);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm4-9b-chat", 4096, 40, 32, 2, 128, 13696, 151552, 131072, 1e4, false},
    {"glm-edge-1.5b",
     2048,
     28,
     16,
     4,
     128,
     6144,
     59264,
     8192,
     1e4,
     true,
     {},
     {{"attention_bias", false}, {"partial_rotary_factor", 1.0}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "chatglm",
                       .claims = [](const GgufSays& file) { return file.tensor("blk.0.attn_q.weight") != nullptr; },
                       .names = {{"mlp.gate_up_proj", "ffn_up"}},
                       .turns_in_part = true};

const RegisterFamily glm(
    "glm", {.title = "GLM-4 (2024), GLM-Edge",
            .architecture = "GlmForCausalLM",
            .read = read,
            .says = {{"attention_bias", true}, {"partial_rotary_factor", 0.5}, {"rms_norm_eps", 1.5625e-7}},
            .presets = presets,
            .gguf = gguf});
}  // namespace

}  // namespace apus::families::glm
