// SPDX-License-Identifier: Apache-2.0
// Command with experts: Cohere 2's parallel branches and sliding layers; a few dense layers may come first.
#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::cohere2_moe {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 8192, .ffn = 22528, .head_dim = 128, .tied = true});
  if (!c.find("rms_norm_eps")) spec.norm = {.kind = NormKind::Mean, .eps = c.number("layer_norm_eps", 1e-5)};
  spec.norms.before_feed_forward = "";
  spec.parallel = true;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.ropes[0].neighbours = true;
  spec.logit_scale = c.number("logit_scale", 0.0625);
  const int64_t dense = c.integer("first_k_dense_replace", 0),
                dense_full = c.integer("prefix_dense_sliding_window_pattern", 1), full = read_full_every(c);
  require(dense_full > 0, Fault::Model, "config.json: prefix_dense_sliding_window_pattern must be above 0");
  spec.window = read_windows(c, spec.shape.layers, [&](int64_t layer) {
    return layer < dense ? (layer + 1) % dense_full != 0 : (layer - dense + 1) % full != 0;
  });
  const auto sparse = sparse_layers(c, spec.shape.layers, 0);
  turn_only(spec,
            [&](size_t i) { return spec.window[i] > 0 || (dense_full == 1 && !sparse(static_cast<int64_t>(i))); });
  const int64_t width = c.integer("intermediate_size", 22528);
  for (FeedForwardSpec& each : spec.feed_forward)
    std::get<DenseSpec>(each).ffn = c.integer("prefix_dense_intermediate_size", width);
  const auto scores = c.text("expert_selection_fn", "softmax"),
             joined = c.text("shared_expert_combination_strategy", "average");
  require((scores == "softmax" || scores == "sigmoid") && (joined == "average" || joined == "sum"), Fault::Model,
          "config.json: expert_selection_fn '", scores, "' or shared_expert_combination_strategy '", joined,
          "' is not known; known: softmax, sigmoid; average, sum");
  const int64_t shared = c.integer("num_shared_experts", 0);
  // Shares of the chosen ones alone are shares of all brought to a sum of one.
  use_experts(
      c, spec,
      {.experts = c.integer("num_experts", 8),
       .per_token = c.integer("num_experts_per_tok", 2),
       .ffn = width,
       .shared_ffn = width * shared,
       .out_scale = shared > 0 && joined == "average" ? 0.5 : 1,
       .router = {.sigmoid = scores == "sigmoid", .normalise = scores == "softmax" || c.flag("norm_topk_prob", true)},
       .names = {.shared = "shared_experts", .shared_is_gated = false}},
      sparse);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"command-moe", 8192, 40, 64, 8, 128, 22528, 256000, 8192, 1e4, true},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  config["expert_selection_fn"] = file.integer("expert_gating_func") == 2 ? "sigmoid" : "softmax";
  words::read_windows_of_layers(file, config);
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  words::write_windows_of_layers(read(Config(config)).window, out);
}

const GgufForm gguf = {.architecture = "cohere2moe",
                       .names = words::shared_experts(),
                       .keys = words::both(words::experts("num_experts", "num_experts_per_tok", "intermediate_size"),
                                           {{"prefix_dense_intermediate_size", "feed_forward_length"},
                                            {"num_shared_experts", "expert_shared_count"},
                                            {"first_k_dense_replace", "leading_dense_block_count"},
                                            {"norm_topk_prob", "expert_weights_norm", GgufKey::Flag},
                                            {"logit_scale", "logit_scale", GgufKey::Number},
                                            words::window()}),
                       .eps = words::mean_eps("layer_norm_eps"),
                       .read = read_gguf,
                       .write = write_gguf};

const RegisterFamily cohere2_moe("cohere2_moe", {.title = "Command with experts",
                                                 .architecture = "Cohere2MoeForCausalLM",
                                                 .read = read,
                                                 .says = {{"num_experts", 8},
                                                          {"num_experts_per_tok", 2},
                                                          {"num_shared_experts", 0},
                                                          {"logit_scale", 0.0625},
                                                          {"layer_norm_eps", 1e-5},
                                                          {"rms_norm_eps", nullptr},
                                                          {"sliding_window", 4096},
                                                          {"sliding_window_pattern", 4}},
                                                 .presets = presets,
                                                 .gguf = gguf});
}  // namespace

}  // namespace apus::families::cohere2_moe
