// SPDX-License-Identifier: Apache-2.0
// Command R7B and Command A: attention and feed-forward side by side, norms that take the mean off; sliding layers turn
// neighbours together, full ones are not told positions.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::cohere2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 8192, .tied = true});
  spec.norm = {.kind = NormKind::Mean, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.norms.before_feed_forward = "";
  spec.parallel = true;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.ropes[0].neighbours = true;
  spec.window = read_windows(c, spec.shape.layers, all_but_every(4));
  turn_only(spec, [&](size_t i) { return spec.window[i] > 0; });
  spec.logit_scale = c.number("logit_scale", 0.0625);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"command-r7b", 4096, 32, 32, 8, 128, 14336, 256000, 132096, 5e4, true},
};

// How it stands in GGUF files.
const GgufForm gguf = {.architecture = "cohere2",
                       .keys = {{"logit_scale", "logit_scale", GgufKey::Number}, words::window()},
                       .eps = words::mean_eps("layer_norm_eps"),
                       .turns_in_part = true};

const RegisterFamily cohere2("cohere2",
                             {.title = "Command R7B, Command A",
                              .architecture = "Cohere2ForCausalLM",
                              .read = read,
                              .says = {{"logit_scale", 0.25}, {"layer_norm_eps", 1e-5}, {"sliding_window", 4096}},
                              .presets = presets,
                              .gguf = gguf});
}  // namespace

}  // namespace apus::families::cohere2
