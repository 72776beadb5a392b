// SPDX-License-Identifier: Apache-2.0
// StarCoder 2: norms that take the mean off and have biases, as all matrices do; a plain feed-forward.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::starcoder2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 2, .positions = 4096, .tied = true});
  const bool bias = c.flag("use_bias", true);
  spec.act = read_activation(c, "hidden_act", "gelu_pytorch_tanh");
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("norm_epsilon", 1e-5)};
  spec.attention.qkv_bias = spec.attention.out_bias = bias;
  spec.window = read_windows(c, spec.shape.layers, c.find("sliding_window") ? Slides::Always : Slides::Never);
  use_kind(spec, FeedForwardKind::Plain, bias);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"starcoder2-3b", 3072, 30, 24, 2, 0, 12288, 49152, 16384, 999999.44, true, {}, {{"sliding_window", 4096}}},
    {"starcoder2-15b", 6144, 40, 48, 4, 0, 24576, 49152, 16384, 1e5, false, {}, {{"sliding_window", 4096}}},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "starcoder2",
                       .names = {{"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}},
                       .keys = {words::window()},
                       .eps = words::mean_eps("norm_epsilon"),
                       .says = {{"hidden_act", "gelu_pytorch_tanh"}, {"use_bias", true}}};

const RegisterFamily starcoder2(
    "starcoder2", {.title = "StarCoder 2",
                   .architecture = "Starcoder2ForCausalLM",
                   .read = read,
                   .says = {{"hidden_act", "gelu_pytorch_tanh"}, {"norm_epsilon", 1e-5}, {"use_bias", true}},
                   .presets = presets,
                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::starcoder2
