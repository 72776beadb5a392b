// SPDX-License-Identifier: Apache-2.0
// The options of rewards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "reward/plugin_options.h"

namespace apus {

struct RewardOptions : virtual PluginOptions {
  std::vector<std::string> reward_funcs;  // names here or in a plugin, or external:PROGRAM
  std::vector<double> reward_weights;
  std::vector<std::string> reward_model;     // folders of models with a head of one score
  std::vector<std::string> reward_adapters;  // a LoRA adapter on each of them, or none at all
  double reward_timeout = 60;                // seconds that a program may take for a round of answers
  std::string reward_failure = "stop";       // stop, skip
  std::optional<std::string> judge_url;      // of an OpenAI chat API, up to /v1
  std::string judge_model = "judge";
  std::optional<std::string> judge_prompt;  // a text or a file of it, with {question}, {answer}, {solution}
  double judge_best_score = 10;             // what the judge says of a perfect answer: worth 1
  int64_t judge_parallel = 8, judge_max_tokens = 512;
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

// What a reward model is called in logs: its folder's name, told apart from those there are.
std::string reward_model_name(const std::string& folder, const std::vector<std::string>& others);

}  // namespace apus
