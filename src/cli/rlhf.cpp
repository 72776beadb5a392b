// SPDX-License-Identifier: Apache-2.0
// `apus rlhf`: the training algorithms that learn from preferences or rewards, chosen by --rlhf_type. Each registers
// itself (train/options/algorithm_options.h); the command's options are those of training and of the chosen one.
#include <algorithm>

#include "base/wrap.h"
#include "cli/command.h"
#include "cli/train.h"

namespace apus {
namespace {

std::string algorithms_text() {
  std::string out = "Algorithms\n";
  for (const std::string& name : algorithms_of("rlhf"))
    out += two_columns("--rlhf_type " + name, algorithm_info(name).summary, 24, 100);
  return out + "apus rlhf --rlhf_type NAME --help shows the options of one of them.\n";
}

// Of the one that is asked for by name.
std::vector<std::string> examples_of(const std::vector<std::string>& arguments) {
  const bool asked = std::any_of(arguments.begin(), arguments.end(),
                                 [](const std::string& argument) { return argument.starts_with("--rlhf_type"); });
  return asked ? algorithm_info(algorithm_asked_for(arguments, "rlhf", "dpo")).examples : std::vector<std::string>();
}

const bool rlhf_registered = [] {
  register_command({.info = {.name = "rlhf",
                             .group = "Train",
                             .summary = "align a model: preferences, rewards, reward models",
                             .examples = {"rlhf --rlhf_type dpo --model DIR --dataset pairs.jsonl --output_dir out",
                                          "rlhf --rlhf_type kto --model DIR --dataset judged.jsonl --tuner_type full",
                                          "rlhf --rlhf_type grpo --model DIR --dataset questions.jsonl --reward_funcs "
                                          "accuracy format"},
                             .afterword = algorithms_text,
                             .examples_of = examples_of},
                    .maker = [](const std::vector<std::string>& arguments) {
                      return training_command(algorithm_asked_for(arguments, "rlhf", "dpo"));
                    }});
  return true;
}();

}  // namespace
}  // namespace apus
