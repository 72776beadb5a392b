// SPDX-License-Identifier: Apache-2.0
// CodeGen 1 and 2: GPT-J with one matrix for queries, values and keys, in four parts.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = gpt_words(c);
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048});
  use_gpt_names(Config(all), spec, "gelu_new");
  spec.norms.before_feed_forward = "";
  spec.parallel = spec.head_bias = true;
  spec.attention.fused = Fused::Quarters, spec.attention.out_name = "out_proj";
  spec.ropes[0].dim = c.integer("rotary_dim", 64), spec.ropes[0].neighbours = true;
  require(spec.ropes[0].dim > 0 && spec.ropes[0].dim <= spec.shape.head_dim && spec.ropes[0].dim % 2 == 0 &&
              spec.shape.heads % 4 == 0,
          Fault::Model, "config.json: rotary_dim ", spec.ropes[0].dim, " does not fit heads of ", spec.shape.head_dim,
          ", or the number of heads is no multiple of 4");
  use_plain(spec, {.up = "fc_in", .down = "fc_out"}, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"codegen-350m", 1024, 20, 16, 16, 0, 4096, 51200, 2048, 1e4, false, {}, {{"rotary_dim", 32}}},
    {"codegen-2b", 2560, 32, 32, 32, 0, 10240, 51200, 2048, 1e4, false},
};

const RegisterFamily codegen("codegen", {.title = "CodeGen",
                                         .architecture = "CodeGenForCausalLM",
                                         .read = read,
                                         .says = {{"rotary_dim", 64}, {"hidden_act", "gelu_new"}},
                                         .presets = presets});
}  // namespace

}  // namespace apus
