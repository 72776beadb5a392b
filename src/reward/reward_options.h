// SPDX-License-Identifier: Apache-2.0
// The options of rewards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

namespace apus {

struct RewardOptions {
  std::vector<std::string> reward_funcs;  // names, or external:PROGRAM
  std::vector<double> reward_weights;
  double reward_timeout = 60;           // seconds that a program may take for a round of answers
  std::string reward_failure = "stop";  // stop, skip
  double cosine_min_len_value_wrong = -0.5, cosine_max_len_value_wrong = 0;
  double cosine_min_len_value_correct = 1, cosine_max_len_value_correct = 0.5;
  std::optional<int64_t> cosine_max_len;  // absent: max_completion_length
  int64_t repetition_n_grams = 3;
  double repetition_max_penalty = -1;
  std::optional<int64_t> soft_max_length, soft_cache_length;  // the first absent: max_completion_length
  int64_t max_completion_length = 512;                        // the command's

  void fields(OptionTable& v);
  void check() const;
};

}  // namespace apus
