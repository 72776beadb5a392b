// SPDX-License-Identifier: Apache-2.0
// Arcee (AFM): Llama whose feed-forward has no gate, but the square of relu.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::arcee {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 4096, .eps = 1e-5});
  spec.act = read_activation(c, "hidden_act", "relu2");
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_plain(spec, {.up = "up_proj", .down = "down_proj"}, c.flag("mlp_bias", false));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"afm-4.5b",
     2560,
     36,
     20,
     4,
     128,
     18432,
     128004,
     65536,
     1e4,
     false,
     {},
     {{"rope_scaling",
       {{"rope_type", "yarn"},
        {"factor", 20.0},
        {"mscale", 1.0},
        {"beta_fast", 32.0},
        {"beta_slow", 1.0},
        {"original_max_position_embeddings", 4096}}}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "arcee", .says = {{"hidden_act", "relu2"}}, .neighbours = true};

const RegisterFamily arcee("arcee", {.title = "Arcee AFM",
                                     .architecture = "ArceeForCausalLM",
                                     .read = read,
                                     .says = {{"hidden_act", "relu2"}, {"rms_norm_eps", 1e-5}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::arcee
