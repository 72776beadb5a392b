// SPDX-License-Identifier: Apache-2.0
// Command R and R+, Aya: attention and feed-forward side by side, norms that take the mean off, neighbours turned
// together; in larger ones a norm of each head.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::cohere {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 8192, .tied = true, .rope = {.theta = 500000}});
  spec.norm = {.kind = NormKind::Mean, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.norms.before_feed_forward = "";
  spec.parallel = true;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  if (c.flag("use_qk_norm", false)) spec.attention.qk_norm = QkNorm::EachHead;
  spec.ropes[0].neighbours = true;
  spec.logit_scale = c.number("logit_scale", 0.0625);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"aya-23-8b", 4096, 32, 32, 8, 0, 14336, 256000, 8192, 10000, true},
    {"command-r", 8192, 40, 64, 64, 0, 22528, 256000, 131072, 8e6, true},
    {"command-r-plus",
     12288,
     64,
     96,
     8,
     0,
     33792,
     256000,
     131072,
     75e6,
     true,
     {},
     {{"use_qk_norm", true}, {"logit_scale", 0.8333333333333334}}},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["use_qk_norm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
}

const GgufForm gguf = {.architecture = "command-r",
                       .keys = {{"logit_scale", "logit_scale", GgufKey::Number}},
                       .eps = words::mean_eps("layer_norm_eps"),
                       .read = read_gguf};

const RegisterFamily cohere("cohere", {.title = "Command R and R+, Aya",
                                       .architecture = "CohereForCausalLM",
                                       .read = read,
                                       .says = {{"logit_scale", 0.0625}, {"layer_norm_eps", 1e-5}},
                                       .presets = presets,
                                       .gguf = gguf});
}  // namespace

}  // namespace apus::families::cohere
