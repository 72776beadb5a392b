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

std::string asked_for(const std::vector<std::string>& arguments) {
  return algorithm_asked_for(arguments, "rlhf", usual_algorithm("rlhf"));
}

// Of the one that is asked for by name, or the first of each.
std::vector<std::string> examples_of(const std::vector<std::string>& arguments) {
  const bool asked = std::any_of(arguments.begin(), arguments.end(),
                                 [](const std::string& argument) { return argument.starts_with("--rlhf_type"); });
  if (asked) return algorithm_info(asked_for(arguments)).examples;
  std::vector<std::string> first;
  for (const std::string& name : algorithms_of("rlhf"))
    if (const auto& examples = algorithm_info(name).examples; !examples.empty()) first.push_back(examples.front());
  return first;
}

const bool rlhf_registered = [] {
  register_command(
      {.info = {.name = "rlhf",
                .group = "Train",
                .summary = "align a model: preferences, rewards, reward models",
                .examples = {"rlhf --rlhf_type NAME --model DIR --dataset rows.jsonl --output_dir out"},
                .afterword = algorithms_text,
                .examples_of = examples_of},
       .maker = [](const std::vector<std::string>& arguments) { return training_command(asked_for(arguments)); }});
  return true;
}();

}  // namespace
}  // namespace apus
