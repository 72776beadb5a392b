// SPDX-License-Identifier: Apache-2.0
// Reads config.json in the spellings transformers has used over the years: rope_scaling and rope_parameters, rope_type
// and type, layer_types and max_window_layers.
#pragma once

#include <cstdint>
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
  // Absent: empty.
  std::vector<int64_t> integers(const char* key) const;
  std::vector<double> numbers(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  // Null counts as absent.
  const Json* find(const char* key) const;
  const Json& json() const { return json_; }

 private:
  const Json& json_;
};

// positions: max_position_embeddings
RopeSpec read_rope(const Config& config, int64_t head_dim, int64_t positions);

// Which layers slide: all, whatever layer_types says; or those that layer_types names, and where the file has none,
// those from max_window_layers on (Above), or every second one before it (EvenBelow).
enum class Slides { Never, Always, Above, EvenBelow };
// Per layer: the sliding window, 0 for full attention.
std::vector<int64_t> read_windows(const Config& config, int64_t layers, Slides rule);
// Qwen's files keep a window that counts only with use_sliding_window.
inline Slides if_asked(const Config& config, Slides rule) {
  return config.flag("use_sliding_window", false) ? rule : Slides::Never;
}

// hidden_act; silu where the file says nothing.
Activation read_activation(const Config& config);

// Refuses what would make another model of the same tensors, and is not done here; and quantised weights.
// Head::Scalar: an architecture that gives numbers instead of words is wanted.
void refuse_other_models(const Config& config, Head head = Head::Vocab);
// Code that the checkpoint brings is not run: a warning says so.
void mention_own_code(const Config& config);

}  // namespace apus
