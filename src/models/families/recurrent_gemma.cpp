// SPDX-License-Identifier: Apache-2.0
// RecurrentGemma (Griffin): of three layers two keep one fading sum a channel, and the third attends to a window; half
// of a head turns, and norms count from one.
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::recurrent_gemma {

namespace {
// Which layers attend: block_types, over and over.
std::function<Keeps(int64_t)> read_blocks(const Config& c) {
  std::vector<std::string> blocks = c.texts("block_types");
  if (blocks.empty()) blocks = {"recurrent", "recurrent", "attention"};
  for (const std::string& block : blocks)
    require(block == "recurrent" || block == "attention", Fault::Model, "config.json: block_types names '", block,
            "'; known: recurrent, attention");
  return [blocks](int64_t layer) {
    return blocks[static_cast<size_t>(layer) % blocks.size()] == "attention" ? Keeps::Tokens : Keeps::State;
  };
}

DecoderSpec read(const Config& c) {
  Json words = c.json();
  const int64_t heads = c.integer("num_attention_heads", 10), ffn = c.integer("intermediate_size", 7680);
  words["intermediate_size"] = ffn / 2;  // gate and up together are as wide as the file says
  words["num_attention_heads"] = heads;
  DecoderSpec spec =
      read_decoder(Config(words), {.positions = 8192, .ffn = 3840, .tied = true, .rope = {.turned = 0.5}});
  spec.act = read_activation(c, "hidden_activation", "gelu_pytorch_tanh");
  spec.norm.kind = NormKind::RmsFromOne;
  spec.norms = {.before_attention = "temporal_pre_norm", .before_feed_forward = "channel_pre_norm"};
  spec.attention_name = "temporal_block", spec.dense_name = "mlp_block", spec.final_norm = "final_norm";
  spec.attention.qkv_bias = c.flag("attention_bias", false), spec.attention.out_bias = true;
  for (FeedForwardSpec& each : spec.feed_forward) std::get<DenseSpec>(each).bias = true;
  // The original keeps this number in bfloat16, whatever the weights are.
  spec.embedding_scale = bf16_to_float(float_to_bf16(std::sqrt(static_cast<float>(spec.shape.hidden))));
  spec.logit_softcap = read_softcap(c, "logits_soft_cap", 30);
  const auto keeps = read_blocks(c);
  const int64_t window = c.integer("attention_window_size", 2048);
  require(window > 0, Fault::Model, "config.json: attention_window_size must be above 0");
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    if (keeps(i) == Keeps::Tokens) spec.window[static_cast<size_t>(i)] = window;
  use_states(c, spec,
             FadingForm{.width = c.integer("lru_width", spec.shape.hidden),
                        .blocks = heads,
                        .taps = c.integer("conv1d_width", 4),
                        .act = spec.act},
             keeps);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"recurrentgemma-2b", 2560, 26, 10, 1, 256, 15360, 256000, 8192, 1e4, true},
};

const RegisterFamily recurrent_gemma("recurrent_gemma",
                                     {.title = "RecurrentGemma",
                                      .architecture = "RecurrentGemmaForCausalLM",
                                      .read = read,
                                      .says = {{"hidden_activation", "gelu_pytorch_tanh"},
                                               {"attention_window_size", 2048},
                                               {"lru_width", 2560},
                                               {"conv1d_width", 4},
                                               {"logits_soft_cap", 30.0},
                                               {"partial_rotary_factor", 0.5},
                                               {"block_types", {"recurrent", "recurrent", "attention"}}},
                                      .presets = presets});
}  // namespace

}  // namespace apus::families::recurrent_gemma
