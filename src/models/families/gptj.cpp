// SPDX-License-Identifier: Apache-2.0
// GPT-J: attention and a plain feed-forward side by side behind one norm; neighbours turn together in a part of each
// head.
#include "models/families/gptj.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus {

DecoderSpec read_gptj(const Config& c) {
  const Json all = gpt_words(c);
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048});
  use_gpt_names(Config(all), spec, "gelu_new");
  spec.norms.before_feed_forward = "";
  spec.parallel = spec.head_bias = true;
  spec.attention.out_name = "out_proj";
  spec.ropes[0].dim = c.integer("rotary_dim", 64), spec.ropes[0].neighbours = true;
  require(spec.ropes[0].dim > 0 && spec.ropes[0].dim <= spec.shape.head_dim && spec.ropes[0].dim % 2 == 0, Fault::Model,
          "config.json: rotary_dim ", spec.ropes[0].dim, " does not fit heads of ", spec.shape.head_dim);
  use_plain(spec, {.up = "fc_in", .down = "fc_out"}, true);
  return spec;
}

}  // namespace apus

namespace apus::families::gptj {

namespace {
// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gpt-j-6b", 4096, 28, 16, 16, 0, 16384, 50400, 2048, 1e4, false},
};

const RegisterFamily gptj("gptj", {.title = "GPT-J",
                                   .architecture = "GPTJForCausalLM",
                                   .read = read_gptj,
                                   .says = {{"rotary_dim", 64}, {"hidden_act", "gelu_new"}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::gptj
