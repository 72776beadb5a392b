// SPDX-License-Identifier: Apache-2.0
// JetMoe: experts make the queries of attention and bring back what they see, and experts are the feed-forward; behind
// each kind a bias is added.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::jetmoe {

namespace {
DecoderSpec read(const Config& c) {
  Json words = in_usual_words(c, {{"kv_channels", "head_dim"}, {"activation_function", "hidden_act"}});
  const int64_t kv_heads = c.integer("num_key_value_heads", 16), per_token = c.integer("num_experts_per_tok", 2),
                experts = c.integer("num_local_experts", 8);
  require(per_token > 0 && per_token <= experts, Fault::Model, "config.json: ", experts,
          " experts of which each token takes ", per_token, " do not fit together");
  words["num_key_value_heads"] = kv_heads, words["num_attention_heads"] = kv_heads * per_token;
  DecoderSpec spec = read_decoder(Config(words), {.positions = 4096, .ffn = 5632, .head_dim = 128, .tied = true});
  // Norms of layers keep the usual number, whatever the file says of the last one.
  spec.final_eps = spec.norm.eps, spec.norm.eps = 1e-6;
  spec.attention_name = "self_attention";
  spec.attention.experts = experts, spec.attention.per_token = per_token;
  use_experts(c, spec,
              {.experts = experts,
               .per_token = per_token,
               .ffn = std::get<DenseSpec>(spec.feed_forward[0]).ffn,
               .router = {.normalise = true},
               .names = {.router = "router.layer",
                         .stacked_gate_up = "input_linear.weight",
                         .stacked_down = "output_linear.weight",
                         .bias = "bias"}},
              [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"jetmoe-8b", 2048, 24, 32, 16, 128, 5632, 32000, 4096, 1e4, true},
};

const RegisterFamily jetmoe("jetmoe", {.title = "JetMoe",
                                       .architecture = "JetMoeForCausalLM",
                                       .read = read,
                                       .says = {{"kv_channels", 128},
                                                {"num_local_experts", 8},
                                                {"num_experts_per_tok", 2},
                                                {"activation_function", "silu"},
                                                {"rms_norm_eps", 1e-5}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::jetmoe
