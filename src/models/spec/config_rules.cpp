// SPDX-License-Identifier: Apache-2.0
// What config.json says about positions, windows and activations, and what it may not say.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "models/spec/config.h"
#include "quant/scheme.h"

namespace apus {

namespace {
// rope_scaling of transformers 4 or rope_parameters of 5, which may be one set per kind of layer.
const Json& rope_settings(const Config& config, RopeOf of) {
  static const Json none = Json::object();
  const Json* found = &none;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = config.find(key);
    if (!value || value->empty()) continue;
    require(value->is_object(), Fault::Model, "config.json: '", key, "' should be an object");
    found = value;
    break;
  }
  const Config kinds(*found);
  const Json *full = kinds.find("full_attention"), *sliding = kinds.find("sliding_attention");
  require(of != RopeOf::Every || !full || !sliding || *full == *sliding, Fault::Model,
          "config.json: other rotary settings for sliding layers than for full ones are not known in this family");
  const Json* both = of == RopeOf::SlidingLayers ? (sliding ? sliding : full) : (full ? full : sliding);
  if (!both) return *found;
  require(both->is_object(), Fault::Model, "config.json: rotary settings of a kind of layer should be an object");
  return *both;
}

// A scaling without its numbers would be none at all, or another one.
void require_numbers(const std::string& type, const Config& rope, const Config& config) {
  static const std::map<std::string, std::vector<const char*>> needed = {
      {"linear", {"factor"}}, {"dynamic", {"factor"}}, {"llama3", {"factor", "low_freq_factor", "high_freq_factor"}}};
  const auto has = [&](const char* key) { return rope.find(key) || config.find(key); };
  if (const auto keys = needed.find(type); keys != needed.end())
    for (const char* key : keys->second)
      require(has(key), Fault::Model, "config.json: the rotary settings of type '", type, "' lack '", key, "'");
  require(type != "yarn" || has("factor") || has("original_max_position_embeddings"), Fault::Model,
          "config.json: the rotary settings of type 'yarn' lack 'factor'");
}

double above_zero(const Config& config, const char* key, double fallback) {  // 0 counts as absent
  const double value = config.number(key, fallback);
  return value == 0 ? fallback : value;
}
}  // namespace

RopeSpec read_rope(const Config& config, int64_t head_dim, int64_t positions, const RopeDefaults& defaults) {
  const Config rope(rope_settings(config, defaults.of));
  RopeSpec spec;
  spec.type = rope.text("rope_type", rope.text("type", "default"));
  if (spec.type == "mrope") spec.type = "default";
  // Older names of it.
  if (spec.type == "su" || (spec.type == "yarn" && rope.find("short_factor"))) spec.type = "longrope";
  const double alpha = defaults.alpha && spec.type == "dynamic" ? rope.number("alpha", 0) : 0;
  if (alpha > 0) spec.type = "default";
  require_numbers(spec.type, rope, config);
  spec.theta = rope.number("rope_theta", config.number("rope_theta", defaults.theta));
  const double turned = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", defaults.turned));
  require(turned > 0 && turned <= 1, Fault::Model, "config.json: partial_rotary_factor must be above 0 and at most 1");
  const bool whole = spec.type == "proportional";
  spec.turning = whole ? turned : 1;
  spec.dim = whole ? head_dim : static_cast<int64_t>(static_cast<double>(head_dim) * turned);
  if (alpha > 0)
    spec.theta *=
        std::pow(alpha, static_cast<double>(spec.dim) / static_cast<double>(std::max<int64_t>(spec.dim - 2, 1)));
  // Some files hold it beside the settings; `dynamic` starts from the whole context whatever they say.
  const char* const original = "original_max_position_embeddings";
  spec.original_positions = above_zero(config, original, above_zero(rope, original, static_cast<double>(positions)));
  if (spec.type == "dynamic") spec.original_positions = static_cast<double>(positions);
  require(spec.original_positions > 0, Fault::Model, "config.json: '", original, "' must be above 0");
  spec.factor = rope.number("factor", static_cast<double>(positions) / spec.original_positions);
  spec.low_freq_factor = rope.number("low_freq_factor", 1);
  spec.high_freq_factor = rope.number("high_freq_factor", 4);
  spec.beta_fast = above_zero(rope, "beta_fast", 32);
  spec.beta_slow = above_zero(rope, "beta_slow", 1);
  spec.attention_factor = rope.number("attention_factor", 0);
  spec.mscale = rope.number("mscale", 0);
  spec.mscale_all_dim = rope.number("mscale_all_dim", 0);
  spec.truncate = rope.flag("truncate", true);
  spec.short_factor = rope.numbers("short_factor");
  spec.long_factor = rope.numbers("long_factor");
  spec.sections = rope.integers("mrope_section");
  spec.interleaved_sections = rope.flag("mrope_interleaved", false);
  const bool whole_pairs = spec.dim % 2 == 0 || (spec.dim < head_dim && spec.type == "default");
  require(spec.dim > 0 && whole_pairs && spec.theta > 0 && spec.factor > 0, Fault::Model,
          "config.json: the rotary settings make no sense (dim ", spec.dim, ", theta ", spec.theta, ", factor ",
          spec.factor, ")");
  require(spec.sections.empty() || spec.sections.size() == 3, Fault::Model,
          "config.json: mrope_section must have three entries");
  // Refused here, not in the first forward.
  for (const int64_t length : {int64_t{0}, INT64_MAX}) rope_frequencies(spec, length);
  return spec;
}

std::vector<int64_t> read_windows(const Config& config, int64_t layers, const std::function<bool(int64_t)>& slides,
                                  int64_t unsaid) {
  const bool said = config.json().contains("sliding_window");  // null: no window
  const int64_t window = said ? config.integer("sliding_window", 0) : unsaid;
  const auto types = config.texts("layer_types");
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  require(types.empty() || types.size() == windows.size(), Fault::Model, "config.json: layer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string type = types.empty() ? "" : types[static_cast<size_t>(i)];
    require(type.empty() || type == "sliding_attention" || type == "full_attention", Fault::Model,
            "config.json: layer type '", type, "' is not supported");
    if (type.empty() ? slides(i) : type == "sliding_attention") windows[static_cast<size_t>(i)] = window;
  }
  return windows;
}

std::vector<int64_t> read_windows(const Config& config, int64_t layers, Slides rule) {
  constexpr int64_t kUnsaid = 4096;
  if (rule == Slides::Never) return std::vector<int64_t>(static_cast<size_t>(layers), 0);
  if (rule == Slides::Always) {
    const bool said = config.json().contains("sliding_window");
    return std::vector<int64_t>(static_cast<size_t>(layers), said ? config.integer("sliding_window", 0) : kUnsaid);
  }
  const int64_t bound = config.integer("max_window_layers", 28);
  return read_windows(
      config, layers, [&](int64_t i) { return rule == Slides::Above ? i >= bound : i % 2 == 0 && i < bound; }, kUnsaid);
}

std::string weights_dtype(const Json& config) {
  const Config c(config);
  std::string name = c.text("torch_dtype", c.text("dtype", ""));
  for (const char* part : {"text_config", "llm_config", "language_config"})
    if (const Json* text = c.find(part); name.empty() && text && text->is_object()) name = weights_dtype(*text);
  return name;
}

Activation read_activation(const Config& config, const char* key, const char* unsaid) {
  static const std::map<std::string, Activation> known = {
      {"silu", Activation::Silu},
      {"swish", Activation::Silu},
      {"gelu", Activation::Gelu},
      {"gelu_python", Activation::Gelu},
      {"gelu_new", Activation::GeluTanh},  // these write one formula in several ways
      {"gelu_fast", Activation::GeluTanh},
      {"gelu_accurate", Activation::GeluTanh},
      {"gelu_pytorch_tanh", Activation::GeluTanh},
      {"gelu_python_tanh", Activation::GeluTanh},
      {"relu", Activation::Relu},
      {"relu2", Activation::Relu2},
      {"xielu", Activation::Xielu},
  };
  const auto name = config.text(key, unsaid);
  std::vector<std::string> names;
  for (const auto& [each, act] : known) names.push_back(each);
  const auto found = known.find(name);
  require(found != known.end(), Fault::Model, "config.json: ", key, " '", name,
          "' is not supported; known: ", join(names));
  return found->second;
}

void refuse_other_models(const Config& config, Head head) {
  if (const Json* packed = config.find("quantization_config")) quant::scheme_of({{"quantization_config", *packed}});
  // Gemma 4 says which tokens do: "vision", or "all".
  const Json* ahead = config.find("use_bidirectional_attention");
  const bool all_see =
      ahead && ahead->is_string() ? *ahead == "all" : config.flag("use_bidirectional_attention", false);
  require(config.flag("is_causal", true) && !all_see, Fault::Model,
          "config.json: attention that looks at later tokens too (is_causal false, use_bidirectional_attention) makes "
          "embeddings, not text; this program runs causal language models");
  for (const auto& name : config.texts("architectures"))
    for (const char* other : {"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
                              "ForRewardModel", "RewardModel"})
      require(head != Head::Vocab || !name.ends_with(other), Fault::Model, "config.json: architectures says ", name,
              ", whose head gives labels or scores instead of tokens; this program runs causal language models "
              "(...ForCausalLM)");
}

void mention_own_code(const Config& config) {
  const Json* code = config.find("auto_map");
  if (!code || !code->is_object()) return;
  for (const char* key : {"AutoModelForCausalLM", "AutoModel"})
    if (const auto it = code->find(key); it != code->end() && it->is_string())
      return log_warning("config.json: the checkpoint brings code of its own (auto_map: ", it->get<std::string>(),
                         "), which is not run: this is the usual ", config.text("model_type", ""),
                         "; compare some answers if that code does anything else");
}

}  // namespace apus
