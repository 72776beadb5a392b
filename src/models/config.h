// SPDX-License-Identifier: Apache-2.0
// Reads config.json in the spellings transformers has used: flat and nested (text_config), rope_scaling and
// rope_parameters, torch_dtype and dtype. Config itself knows no tensor library; config_rules.cpp holds what does.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct RopeSpec;        // nn/rope.h
enum class Activation;  // nn/mlp.h

class Config {
 public:
  explicit Config(const Json& json) : json_(json) {}
  int64_t integer(const char* key) const;                    // required; Fault::Model names the key
  int64_t integer(const char* key, int64_t fallback) const;  // absent or null: the fallback
  double number(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  std::vector<int64_t> integers(const char* key) const;  // absent: empty
  std::vector<double> numbers(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  const Json& json() const { return json_; }
  const Json* find(const char* key) const;  // null counts as absent

 private:
  const Json& json_;
};

RopeSpec read_rope(const Config& config, int64_t head_dim, int64_t positions);  // positions: max_position_embeddings

// Which layers slide: all, whatever layer_types says; or those that layer_types names, and where the file has none,
// those from max_window_layers on (Above), or every second one before it (EvenBelow).
enum class Slides { Never, Always, Above, EvenBelow };
// Per layer: the sliding window, 0 for full attention.
std::vector<int64_t> read_windows(const Config& config, int64_t layers, Slides rule);
// Qwen's files keep a window that counts only with use_sliding_window.
inline Slides if_asked(const Config& config, Slides rule) {
  return config.flag("use_sliding_window", false) ? rule : Slides::Never;
}

Activation read_activation(const Config& config);  // hidden_act; silu where the file says nothing

// What would make another model of the same tensors, and is not done here, is refused; code of the checkpoint's own is
// not run, which is said. `scores`: a head that gives numbers instead of words is wanted.
void check_nothing_else(const Config& config, bool scores = false);

}  // namespace apus
