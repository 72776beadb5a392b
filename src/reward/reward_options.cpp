// SPDX-License-Identifier: Apache-2.0
#include "reward/reward_options.h"

#include <algorithm>

#include "reward/external.h"
#include "reward/reward.h"

namespace apus {
namespace {

std::string known_rewards() {
  std::string names;
  for (const auto& [name, make] : Registry<MakeReward>::of().all()) names += name + ", ";
  return names + kExternalReward + "PROGRAM";
}

}  // namespace

void RewardOptions::fields(OptionTable& v) {
  v.group("Rewards");
  v("reward_funcs", reward_funcs, "what answers are worth: " + known_rewards() + " (docs/grpo.md)").noted();
  v("reward_weights", reward_weights, "a factor for each of --reward_funcs").shown_default("all 1").noted();
  v("reward_timeout", reward_timeout, "seconds that a program may take for a round of answers").above(0);
  v("reward_failure", reward_failure,
    "a program that died, hung or printed what cannot be read: stop the run, or skip its opinion of that round")
      .choices({"stop", "skip"});
  v("cosine_min_len_value_wrong", cosine_min_len_value_wrong, "cosine: of a wrong answer of no length").noted();
  v("cosine_max_len_value_wrong", cosine_max_len_value_wrong, "cosine: of a wrong answer of full length").noted();
  v("cosine_min_len_value_correct", cosine_min_len_value_correct, "cosine: of a right answer of no length").noted();
  v("cosine_max_len_value_correct", cosine_max_len_value_correct, "cosine: of a right answer of full length").noted();
  v("cosine_max_len", cosine_max_len, "cosine: the full length in tokens")
      .at_least(1)
      .shown_default("--max_completion_length");
  v("repetition_n_grams", repetition_n_grams, "repetition: words that count as one repeated piece").at_least(1).noted();
  v("repetition_max_penalty", repetition_max_penalty, "repetition: of an answer that only repeats").at_most(0).noted();
  v("soft_max_length", soft_max_length, "soft_overlong: from here on an answer is worth -1 or less")
      .at_least(1)
      .shown_default("--max_completion_length");
  v("soft_cache_length", soft_cache_length, "soft_overlong: so many tokens before, it begins to be worth less")
      .at_least(1);
  v.refuse({"reward_model", "reward_adapters", "reward_model_type", "reward_model_revision", "reward_template",
            "reward_model_plugin"},
           "rewards are functions and programs so far: --reward_funcs, or --reward_funcs external:./judge.sh with a "
           "program that asks the reward model");
}

void RewardOptions::check() const {
  require(reward_weights.empty() || reward_weights.size() == reward_funcs.size(), Fault::Usage, "--reward_weights has ",
          reward_weights.size(), " factors for ", reward_funcs.size(),
          " functions of --reward_funcs: give one for each");
  for (const std::string& name : reward_funcs) {
    if (name.rfind(kExternalReward, 0) == 0) {
      require(name.size() > std::string(kExternalReward).size(), Fault::Usage, "--reward_funcs ", name,
              " names no program: external:./reward.py");
      continue;
    }
    std::vector<std::string> names;
    for (const auto& [known, make] : Registry<MakeReward>::of().all()) names.push_back(known);
    require(std::find(names.begin(), names.end(), name) != names.end(), Fault::Usage, "--reward_funcs ", name,
            " is not known; there are ", known_rewards());
  }
  const bool soft = std::find(reward_funcs.begin(), reward_funcs.end(), "soft_overlong") != reward_funcs.end();
  require(!soft || soft_cache_length, Fault::Usage,
          "--reward_funcs soft_overlong needs --soft_cache_length: how many tokens before the end the penalty begins");
  const int64_t longest = soft_max_length.value_or(max_completion_length);
  require(!soft_cache_length || *soft_cache_length < longest, Fault::Usage, "--soft_cache_length ",
          soft_cache_length.value_or(0), " must be below --soft_max_length ", longest);
}

}  // namespace apus
