// SPDX-License-Identifier: Apache-2.0
// Gemma 3n (text): four hidden states side by side of which one goes through a layer, a narrow path beside attention,
// numbers of each layer's own; the last layers read keys and values of earlier ones, the first ones' gates are sparse.
#include <algorithm>

#include "base/error.h"
#include "models/families/gemma2.h"
#include "models/families/gemma3n.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gemma3n {

Json text_says() {
  return {{"hidden_size_per_layer_input", 256},
          {"vocab_size_per_layer_input", 262144},
          {"altup_num_inputs", 4},
          {"laurel_rank", 64},
          {"sliding_window", 512},
          {"rope_local_base_freq", 1e4},
          {"final_logit_softcapping", 30.0}};
}

}  // namespace apus::families::gemma3n

namespace apus::families::gemma3n_text {

namespace {
// Files may say a width for each layer; the one of the first, where it is one number.
std::vector<int64_t> read_widths(const Config& c) {
  const Json* said = c.find("intermediate_size");
  if (said && said->is_array()) {
    const std::vector<int64_t> widths = c.integers("intermediate_size");
    const int64_t layers = c.integer("num_hidden_layers");
    require(std::ssize(widths) == layers, Fault::Model, "config.json: intermediate_size has ", widths.size(),
            " numbers for ", layers, " layers");
    return widths;
  }
  return std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(0, c.integer("num_hidden_layers"))),
                              c.integer("intermediate_size", 16384));
}

std::vector<double> read_sparsity(const Config& c, int64_t layers) {
  std::vector<double> shares(static_cast<size_t>(layers));
  if (!c.find("activation_sparsity_pattern")) {
    for (size_t i = 0; layers > 10 && i < 10; ++i) shares[i] = 0.95;
    return shares;
  }
  shares = c.numbers("activation_sparsity_pattern");
  require(std::ssize(shares) == layers, Fault::Model, "config.json: activation_sparsity_pattern has ", shares.size(),
          " numbers for ", layers, " layers");
  for (const double share : shares)
    require(share >= 0 && share < 1, Fault::Model, "config.json: activation_sparsity_pattern: ", share,
            " is no share of a layer's gates");
  return shares;
}

RopeSpec sliding_rope(const Config& c, const ModelShape& shape) {
  if (const Json* sets = c.find("rope_parameters"); sets && sets->contains("sliding_attention"))
    return read_rope(c, shape.head_dim, shape.max_positions, {.of = RopeOf::SlidingLayers});
  return {.dim = shape.head_dim,
          .theta = c.number("rope_local_base_freq", 1e4),
          .original_positions = static_cast<double>(shape.max_positions)};
}

AltUpForm read_altup(const Config& c) {
  const AltUpForm form{.count = c.integer("altup_num_inputs", 4),
                       .active = c.integer("altup_active_idx", 0),
                       .bound = c.number("altup_coef_clip", c.json().contains("altup_coef_clip") ? 0 : 120),
                       .scaled = c.flag("altup_correct_scale", true),
                       .rank = c.integer("laurel_rank", 64)};
  require(form.count > 1 && form.count <= 64 && form.active >= 0 && form.active < form.count && form.rank > 0,
          Fault::Model, "config.json: altup_num_inputs ", form.count, ", altup_active_idx ", form.active,
          " and laurel_rank ", form.rank, " do not fit together");
  return form;
}

DecoderSpec read(const Config& c) {
  const std::vector<int64_t> widths = read_widths(c);
  Json all = c.json();
  if (!widths.empty()) all["intermediate_size"] = widths[0];
  DecoderSpec spec = read_decoder(
      Config(all), {.kv_heads = 2, .head_dim = 256, .tied = true, .rope = {.theta = 1e6, .of = RopeOf::FullLayers}});
  const ModelShape& shape = spec.shape;
  gemma2::use_layers(c, spec);
  const bool bias = c.flag("attention_bias", false);
  spec.attention = {.qkv_bias = bias, .out_bias = bias, .qk_norm = QkNorm::Head, .scale = 1, .value_norm = true};
  spec.window = read_windows(c, shape.layers, all_but_every(5), 512);
  turn_sliding_layers(spec, sliding_rope(c, shape));
  spec.heads_of.assign(static_cast<size_t>(shape.layers), {shape.heads, shape.kv_heads, false});
  share_last_keys(c, spec, 15);
  const std::vector<double> sparsity = read_sparsity(c, shape.layers);
  for (size_t i = 0; i < widths.size(); ++i) {
    auto& dense = std::get<DenseSpec>(spec.feed_forward[i]);
    dense.ffn = widths[i], dense.sparsity = sparsity[i];
  }
  spec.layer_inputs = {.width = c.integer("hidden_size_per_layer_input", 256),
                       .words = c.integer("vocab_size_per_layer_input", 262144),
                       .media_word = -1};
  require(spec.layer_inputs->width > 0 && spec.layer_inputs->words > 0, Fault::Model,
          "config.json: hidden_size_per_layer_input and vocab_size_per_layer_input must be above 0");
  spec.altup = read_altup(c);
  spec.logit_softcap = read_softcap(c, "final_logit_softcapping", 30);
  return spec;
}

Json says(int64_t shared) { return {{"hidden_activation", "gelu_pytorch_tanh"}, {"num_kv_shared_layers", shared}}; }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma3n-e2b", 2048, 30, 8, 2, 256, 8192, 262400, 32768, 1e6, true, {}, says(10)},
    {"gemma3n-e4b", 2048, 35, 8, 2, 256, 16384, 262400, 32768, 1e6, true, {}, says(15)},
};

const RegisterFamily gemma3n_text("gemma3n_text", {.title = "Gemma 3n (text)",
                                                   .architecture = "Gemma3nForCausalLM",
                                                   .read = read,
                                                   .says = gemma3n::text_says(),
                                                   .presets = presets});
}  // namespace

}  // namespace apus::families::gemma3n_text
