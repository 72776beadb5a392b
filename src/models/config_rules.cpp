// SPDX-License-Identifier: Apache-2.0
// What config.json says about positions, windows and activations.
#include "base/error.h"
#include "models/config.h"
#include "nn/rope.h"

namespace apus {

RopeSpec read_rope(const Config& config, int64_t head_dim) {
  static const Json none = Json::object();
  const Json* scaling = config.find("rope_scaling");
  if (!scaling) scaling = config.find("rope_parameters");
  // Newer files may hold one set per kind of layer; these models use the full-attention one everywhere.
  if (scaling && scaling->contains("full_attention")) scaling = &scaling->at("full_attention");
  if (scaling && !scaling->is_object()) fail(Fault::Model, "config.json: 'rope_scaling' should be an object");
  const Config rope(scaling ? *scaling : none);
  const auto positions = static_cast<double>(config.integer("max_position_embeddings", 0));

  RopeSpec spec;
  spec.type = rope.text("rope_type", rope.text("type", "default"));
  if (spec.type == "mrope") spec.type = "default";
  spec.theta = rope.number("rope_theta", config.number("rope_theta", 10000));
  spec.dim = static_cast<int64_t>(static_cast<double>(head_dim) *
                                  rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1)));
  const bool known_original = rope.find("original_max_position_embeddings") != nullptr;
  spec.original_positions = rope.number("original_max_position_embeddings", positions);
  spec.factor =
      rope.number("factor", known_original && spec.original_positions > 0 ? positions / spec.original_positions : 1);
  spec.low_freq_factor = rope.number("low_freq_factor", 1);
  spec.high_freq_factor = rope.number("high_freq_factor", 4);
  spec.beta_fast = rope.number("beta_fast", 32);
  spec.beta_slow = rope.number("beta_slow", 1);
  spec.attention_factor = rope.number("attention_factor", 0);
  spec.mscale = rope.number("mscale", 0);
  spec.mscale_all_dim = rope.number("mscale_all_dim", 0);
  spec.truncate = rope.flag("truncate", true);
  spec.sections = rope.integers("mrope_section");
  spec.interleaved_sections = rope.flag("mrope_interleaved", false);
  require(spec.dim > 0 && spec.dim % 2 == 0 && spec.theta > 0 && spec.factor > 0, Fault::Model,
          "config.json: the rotary settings make no sense (dim ", spec.dim, ", theta ", spec.theta, ", factor ",
          spec.factor, ")");
  require(spec.sections.empty() || spec.sections.size() == 3, Fault::Model,
          "config.json: mrope_section must have three entries");
  rope_frequencies(spec, 0);  // an unknown type is refused here, not in the first forward
  return spec;
}

std::vector<int64_t> read_windows(const Config& config, int64_t layers, Slides rule) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  if (rule == Slides::Never) return windows;
  const int64_t window = config.integer("sliding_window", 0), bound = config.integer("max_window_layers", 28);
  const auto types = config.texts("layer_types");
  require(types.empty() || types.size() == windows.size(), Fault::Model, "config.json: layer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string type = types.empty() ? "" : types[static_cast<size_t>(i)];
    require(type.empty() || type == "sliding_attention" || type == "full_attention", Fault::Model,
            "config.json: layer type '", type, "' is not supported");
    const bool slides = !type.empty()               ? type == "sliding_attention"
                        : rule == Slides::Above     ? i >= bound
                        : rule == Slides::EvenBelow ? i % 2 == 0 && i < bound
                                                    : true;
    if (slides) windows[static_cast<size_t>(i)] = window;
  }
  return windows;
}

void require_silu(const Config& config) {
  const auto act = config.text("hidden_act", "silu");
  require(act == "silu" || act == "swish", Fault::Model, "config.json: hidden_act '", act,
          "' is not supported for this family, only silu");
}

}  // namespace apus
