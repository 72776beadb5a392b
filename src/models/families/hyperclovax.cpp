// SPDX-License-Identifier: Apache-2.0
// HyperCLOVA X SEED: Granite with a norm after each branch, and logits that are multiplied.
#include <cmath>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::hyperclovax {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .mlp_bias = true});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  if (c.flag("use_post_norm", true))
    spec.norms.after_attention = "post_norm1", spec.norms.after_feed_forward = "post_norm2";
  const double unsaid = 1 / std::sqrt(static_cast<double>(spec.shape.head_dim));
  use_multipliers(c, spec);
  spec.attention.scale = c.number("attention_multiplier", unsaid);
  spec.logit_scale = c.number("logits_scaling", 1);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"hyperclovax-seed-14b", 6144, 38, 48, 8, 128, 16384, 110592, 131072, 1e8, false},
};

const RegisterFamily hyperclovax("hyperclovax", {.title = "HyperCLOVA X SEED",
                                                 .architecture = "HyperCLOVAXForCausalLM",
                                                 .read = read,
                                                 .says = {{"use_post_norm", true}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::hyperclovax
