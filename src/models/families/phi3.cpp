// SPDX-License-Identifier: Apache-2.0
// Phi-3, 3.5 and 4: queries, keys and values in one matrix, gate and up in another; longrope in the long versions.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::phi3 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096, .eps = 1e-5});
  spec.attention.fused = Fused::Blocks;
  spec.reads_grown_anew = true;
  spec.window = read_windows(c, spec.shape.layers, c.find("sliding_window") ? Slides::Always : Slides::Never);
  use_kind(spec, FeedForwardKind::FusedGate);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"phi3-mini", 3072, 32, 32, 32, 0, 8192, 32064, 4096, 1e4, false, {}, {{"sliding_window", 2047}}},
    {"phi4", 5120, 40, 40, 10, 0, 17920, 100352, 16384, 250000, false},
};

// How it stands in GGUF files.
const GgufForm gguf = {
    .architecture = "phi3",
    .names = {{"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}},
    .keys = {words::window(), {"original_max_position_embeddings", "rope.scaling.original_context_length"}},
    .two_factor_sets = true,
    .turns_in_part = true};

const RegisterFamily phi3("phi3", {.title = "Phi-3, 3.5 and 4",
                                   .architecture = "Phi3ForCausalLM",
                                   .read = read,
                                   .says = {{"rms_norm_eps", 1e-5}},
                                   .presets = presets,
                                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::phi3
