// SPDX-License-Identifier: Apache-2.0
#include "reward/reward_options.h"

#include <algorithm>
#include <filesystem>

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

std::string reward_model_name(const std::string& folder, const std::vector<std::string>& others) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string name = path.substr(path.rfind('/') + 1);
  std::string out = name;
  for (int number = 2; std::find(others.begin(), others.end(), out) != others.end(); ++number)
    out = str(name, "#", number);
  return out;
}

void RewardOptions::fields(OptionTable& v) {
  v.group("Rewards");
  v("reward_funcs", reward_funcs, "what answers are worth: " + known_rewards()).common().noted();
  v("reward_weights", reward_weights, "a factor for each of --reward_funcs, then of --reward_model")
      .common()
      .shown_default("all 1")
      .noted();
  v("reward_timeout", reward_timeout, "seconds that a program may take for a round of answers").above(0);
  v("reward_failure", reward_failure,
    "a program that died, hung or printed what cannot be read: stop the run, or skip its opinion of that round")
      .choices({"stop", "skip"});
  v("judge_url", judge_url, "judge: the address of an OpenAI chat API, up to /v1; its key is in JUDGE_API_KEY").noted();
  v("judge_model", judge_model, "judge: the name of the model at --judge_url").noted();
  v("judge_prompt", judge_prompt,
    "judge: what it is asked, with {question}, {answer} and {solution}; a text, or a file of it. The last number of "
    "its "
    "reply counts")
      .shown_default("a score from 0 to 10")
      .noted();
  v("judge_best_score", judge_best_score, "judge: the number that is worth 1").above(0).noted();
  v("judge_parallel", judge_parallel, "judge: answers that it is asked about at the same time")
      .at_least(1)
      .at_most(256);
  v("judge_max_tokens", judge_max_tokens, "judge: longest reply in tokens").at_least(1);
  v("cosine_min_len_value_wrong", cosine_min_len_value_wrong, "cosine: reward of a wrong answer of no length").noted();
  v("cosine_max_len_value_wrong", cosine_max_len_value_wrong, "cosine: reward of a wrong answer of full length")
      .noted();
  v("cosine_min_len_value_correct", cosine_min_len_value_correct, "cosine: reward of a right answer of no length")
      .noted();
  v("cosine_max_len_value_correct", cosine_max_len_value_correct, "cosine: reward of a right answer of full length")
      .noted();
  v("cosine_max_len", cosine_max_len, "cosine: the full length in tokens")
      .at_least(1)
      .shown_default("--max_completion_length");
  v("repetition_n_grams", repetition_n_grams, "repetition: words that count as one repeated piece").at_least(1).noted();
  v("repetition_max_penalty", repetition_max_penalty, "repetition: reward of an answer that only repeats")
      .at_most(0)
      .noted();
  v("soft_max_length", soft_max_length, "soft_overlong: from here on an answer is worth -1 or less")
      .at_least(1)
      .shown_default("--max_completion_length");
  v("soft_cache_length", soft_cache_length, "soft_overlong: so many tokens before, it begins to be worth less")
      .at_least(1);
  v("reward_model", reward_model,
    "models with a head of one score that read question and answer (apus rlhf --rlhf_type rm trains one); they must "
    "know the policy's tokens. Their --reward_weights come behind those of the functions")
      .common()
      .noted();
  v("reward_adapters", reward_adapters, "a LoRA adapter on each --reward_model").noted();
  v.no_effect({"reward_model_type", "reward_template"},
              "a checkpoint's config.json says what it is, and it reads the very tokens of question and answer");
  v.refuse({"reward_model_revision"}, "--reward_model takes a folder: download that revision first");
  v.refuse({"reward_model_plugin"},
           "reward models are run here, by their head of one score; a model that judges in words is asked with "
           "--reward_funcs judge, anything else with --reward_funcs external:./judge.sh or a reward of "
           "--external_plugins",
           "default");
}

void RewardOptions::check() const {
  const size_t rewards = reward_funcs.size() + reward_model.size();
  require(reward_weights.empty() || reward_weights.size() == rewards, Fault::Usage, "--reward_weights has ",
          reward_weights.size(), " factors for ", reward_funcs.size(), " functions of --reward_funcs and ",
          reward_model.size(), " models of --reward_model: give one for each");
  require(reward_adapters.empty() || reward_adapters.size() == reward_model.size(), Fault::Usage, "--reward_adapters ",
          "has ", reward_adapters.size(), " adapters for ", reward_model.size(),
          " models of --reward_model: give one for each, or none");
  for (const std::string& name : reward_funcs) {
    if (is_program(name)) {
      require(!program_command(name).empty(), Fault::Usage, "--reward_funcs ", name,
              " names no program: external:./reward.py");
      check_program(program_command(name), "--reward_funcs");
      continue;
    }
    // What plugins register is known when they are imported (environment/plugin.h).
    require(Registry<MakeReward>::of().find(name) || !external_plugins.empty(), Fault::Usage, "--reward_funcs ", name,
            " is not known; there are ", known_rewards());
  }
  const bool judged = std::find(reward_funcs.begin(), reward_funcs.end(), "judge") != reward_funcs.end();
  require(!judged || judge_url, Fault::Usage,
          "--reward_funcs judge needs --judge_url: the address of an OpenAI chat API, e.g. http://127.0.0.1:8000/v1, "
          "which apus deploy serves too");
  require(!judge_prompt || judge_prompt->find('\n') != std::string::npos ||
              judge_prompt->find('{') != std::string::npos || std::filesystem::exists(*judge_prompt),
          Fault::Usage, "--judge_prompt ", judge_prompt.value_or(""),
          " is neither a file here nor a text with {question} and {answer}");
  const bool soft = std::find(reward_funcs.begin(), reward_funcs.end(), "soft_overlong") != reward_funcs.end();
  require(!soft || soft_cache_length, Fault::Usage,
          "--reward_funcs soft_overlong needs --soft_cache_length: how many tokens before the end the penalty begins");
  const int64_t longest = soft_max_length.value_or(max_completion_length);
  require(!soft_cache_length || *soft_cache_length < longest, Fault::Usage, "--soft_cache_length ",
          soft_cache_length.value_or(0), " must be below --soft_max_length ", longest);
}

}  // namespace apus
