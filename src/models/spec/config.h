// SPDX-License-Identifier: Apache-2.0
// Reads config.json in the spellings transformers has used over the years: rope_scaling and rope_parameters, rope_type
// and type, layer_types and max_window_layers.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/spec/decoder_spec.h"

namespace apus {

class Config {
 public:
  explicit Config(const Json& json) : json_(json) {}
  // It must be there; Fault::Model names the key.
  int64_t integer(const char* key) const;
  // Absent or null: the fallback.
  int64_t integer(const char* key, int64_t fallback) const;
  double number(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  // Absent: empty, or what is said then.
  std::vector<int64_t> integers(const char* key) const;
  std::vector<int64_t> integers(const char* key, const std::vector<int64_t>& unsaid) const {
    return find(key) ? integers(key) : unsaid;
  }
  std::vector<double> numbers(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  // Null counts as absent.
  const Json* find(const char* key) const;
  const Json& json() const { return json_; }

 private:
  const Json& json_;
};

// Some files give layers that slide other rotary settings than the rest. Every: that is refused.
enum class RopeOf { Every, FullLayers, SlidingLayers };
struct RopeDefaults {
  double theta = 10000;
  // The part of each head that turns: partial_rotary_factor.
  double turned = 1;
  RopeOf of = RopeOf::Every;
  // `dynamic` with a number alpha is a fixed stretch of the base.
  bool alpha = false;
};
// positions: max_position_embeddings
RopeSpec read_rope(const Config& config, int64_t head_dim, int64_t positions, const RopeDefaults& defaults = {});

// Which layers slide: all, whatever layer_types says; or those that layer_types names, and where the file has none,
// those from max_window_layers on (Above), or every second one before it (EvenBelow).
enum class Slides { Never, Always, Above, EvenBelow };
// Per layer: the sliding window, 0 for full attention.
std::vector<int64_t> read_windows(const Config& config, int64_t layers, Slides rule);
// Those slide that layer_types names, and where the file has none, those that `slides` says; full where there is no
// window. `unsaid`: the window where the file has no such key.
std::vector<int64_t> read_windows(const Config& config, int64_t layers, const std::function<bool(int64_t)>& slides,
                                  int64_t unsaid = 4096);
// All but every n-th layer.
inline std::function<bool(int64_t)> all_but_every(int64_t n) {
  return [n](int64_t layer) { return (layer + 1) % n != 0; };
}
// Qwen's files keep a window that counts only with use_sliding_window.
inline Slides if_asked(const Config& config, Slides rule) {
  return config.flag("use_sliding_window", false) ? rule : Slides::Never;
}

// torch_dtype of transformers 4 or dtype of 5, of the whole or of its text part; "": the file does not say it.
std::string weights_dtype(const Json& config);

Activation read_activation(const Config& config, const char* key = "hidden_act", const char* unsaid = "silu");

// Refuses what would make another model of the same tensors, and is not done here; and quantised weights.
// Head::Scalar: an architecture that gives numbers instead of words is wanted.
void refuse_other_models(const Config& config, Head head = Head::Vocab);
// Code that the checkpoint brings is not run: a warning says so.
void mention_own_code(const Config& config);

}  // namespace apus
