// SPDX-License-Identifier: Apache-2.0
// `apus abilities`: what goes together, and why something does not.
#include <cstdio>

#include "abilities/combination.h"
#include "cli/command.h"
#include "cli/plan_spec.h"

namespace apus {
namespace {

struct AbilitiesOptions {
  std::string model, rlhf_type, format = "text";

  void fields(OptionTable& v) {
    v.group("Abilities");
    v("model", model, "a folder with a config.json, or the name of a known shape: what can be done with this one");
    v("rlhf_type", rlhf_type, "this algorithm alone").choices(algorithms_of("rlhf"));
    v("format", format, "tsv: a line each for programs: what, way, their flags, yes or no, why not")
        .choices({"text", "tsv"});
  }
};

void print(const AbilitiesOptions& o, const std::string& title, const std::vector<Ability>& all) {
  if (o.format == "text") {
    std::printf("%s\n", abilities_text(title, all).c_str());
    return;
  }
  for (const Ability& a : all)
    std::printf("%s\t%s\t%s\t%s\t%s\t%s\n", a.what.c_str(), a.way.c_str(), a.what_flags.c_str(), a.way_flags.c_str(),
                a.why_not.empty() ? "yes" : "no", a.why_not.c_str());
}

int run(const AbilitiesOptions& o) {
  std::optional<ModelFacts> facts;
  if (!o.model.empty()) facts = model_facts(config_named(o.model));
  const ModelFacts* model = facts ? &*facts : nullptr;
  if (o.format == "text")
    std::printf(
        "Two processes share out what a column names: zero2 gradients and the optimizer's state, zero3 weights too, "
        "tensor\nmatrices (with --sequence_parallel true also the tokens between them), experts those of mixtures, "
        "stages layers, tokens\nthe tokens of each row. In a reason `this` is the row, and `the flag` the "
        "column's.\n\n");
  std::vector<Ability> algorithms = algorithm_abilities(model);
  if (!o.rlhf_type.empty()) std::erase_if(algorithms, [&](const Ability& a) { return a.what != o.rlhf_type; });
  print(o, "algorithm, LoRA", algorithms);
  if (!o.rlhf_type.empty()) return 0;
  print(o, "weights, apus sft", weight_abilities(model));
  if (!model) print(o, "family, apus sft", family_abilities());
  return 0;
}

const RegisterCommand<AbilitiesOptions> abilities_command(
    {.name = "abilities",
     .group = "Machine",
     .summary = "what goes together: algorithms, kinds of weights, families, ways to share a run out over processes",
     .examples = {"abilities", "abilities --model DIR", "abilities --rlhf_type NAME"}},
    run);

}  // namespace
}  // namespace apus
