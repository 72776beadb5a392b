// SPDX-License-Identifier: Apache-2.0
// The rules, asked for everything that there is.
#include "base/table.h"

#include <algorithm>
#include <set>

#include "abilities/combination.h"
#include "base/error.h"
#include "base/replace_all.h"
#include "base/wrap.h"
#include "checkpoint/adapter_kinds.h"
#include "models/spec/presets.h"
#include "train/options/optimizer_info.h"

namespace apus {

namespace {

struct Way {
  const char* title;
  const char* flags;
  void (*take)(Combination&);
};
const std::vector<Way> kWays = {
    {"zero2", "--deepspeed zero2", [](Combination& c) { c.zero = 2; }},
    {"zero3", "--deepspeed zero3", [](Combination& c) { c.zero = 3; }},
    {"tensor", "--tensor_model_parallel_size 2", [](Combination& c) { c.tensor = 2; }},
    {"experts", "--expert_model_parallel_size 2", [](Combination& c) { c.experts = 2; }},
    {"stages", "--pipeline_model_parallel_size 2", [](Combination& c) { c.stages = 2; }},
    {"tokens", "--sequence_parallel_size 2", [](Combination& c) { c.tokens = 2; }},
};

void ask(const std::string& what, const std::string& flags, const Combination& alone, std::vector<Ability>& all) {
  for (const Way& way : kWays) {
    Combination wanted = alone;
    way.take(wanted);
    const std::vector<std::string> wrong = refusals(wanted);
    all.push_back({what, way.title, flags, way.flags, wrong.empty() ? "" : wrong.front()});
  }
}

// With LoRA.
Combination of_algorithm(const std::string& name, const ModelFacts* model) {
  const AlgorithmInfo& info = algorithm_info(name);
  return {.algorithm = &info,
          .asked = info.asked_as(name),
          .model = model,
          .tuner = adapter_kinds().front(),
          .quantised = model && model->quantised};
}

}  // namespace

std::vector<Ability> algorithm_abilities(const ModelFacts* model) {
  std::vector<Ability> all;
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all())
    ask(name, info.command_line(name), of_algorithm(name, model), all);
  const Combination answers{.asked = "apus infer", .model = model, .quantised = model && model->quantised};
  ask("infer, deploy, score", "infer", answers, all);
  return all;
}

std::vector<Ability> weight_abilities(const ModelFacts* model) {
  std::vector<Ability> all;
  const Combination adapter = of_algorithm("sft", model);
  Combination full = adapter, matrices = adapter, dora = adapter, quantised = adapter;
  full.tuner = matrices.tuner = "full", matrices.whole_matrices = whole_matrices_flag("muon");
  dora.dora = true, quantised.quantised = true;
  ask("full", "--tuner_type full", full, all);
  ask("full, whole matrices", "--tuner_type full " + matrices.whole_matrices, matrices, all);
  for (const std::string& kind : adapter_words()) {
    Combination wanted = adapter;
    wanted.tuner = kind;
    ask(kind, "--tuner_type " + kind, wanted, all);
  }
  ask("lora, DoRA", "--tuner_type lora --use_dora true", dora, all);
  ask("lora, quantised", "--tuner_type lora --quant_method bnb --quant_bits 4", quantised, all);
  return all;
}

std::vector<Ability> family_abilities() {
  std::vector<Ability> all;
  std::set<std::string> told;
  for (const std::string& name : preset_names()) {
    const ModelFacts facts = model_facts(preset_config(name));
    if (!told.insert(facts.type).second) continue;
    const std::string task = facts.encoder ? " --task_type embedding" : "";
    ask(facts.type, "--model " + name + task, of_algorithm(facts.encoder ? "embedding" : "sft", &facts), all);
  }
  return all;
}

namespace {
// A reason without the names of its row and its column, so that alike ones are told once.
std::string general_reason(const Ability& a) {
  std::string text = a.why_not;
  replace_all(text, a.way_flags.substr(0, a.way_flags.find(' ')), "the flag");
  if (const size_t flags = a.what_flags.find("--"); flags != std::string::npos)
    replace_all(text, a.what_flags.substr(flags), "this");
  replace_all(text, a.what + " models", "these models");
  return text;
}
}  // namespace

std::string abilities_text(const std::string& title, const std::vector<Ability>& all) {
  std::vector<std::vector<std::string>> rows{{title}};
  std::vector<std::string> reasons;
  for (const Way& way : kWays) rows[0].push_back(way.title);
  for (const Ability& a : all) {
    if (rows.size() == 1 || rows.back()[0] != a.what) rows.push_back({a.what});
    const std::string reason = general_reason(a);
    const auto found = std::find(reasons.begin(), reasons.end(), reason);
    const auto number = found - reasons.begin() + 1;
    if (found == reasons.end() && !reason.empty()) reasons.push_back(reason);
    rows.back().push_back(a.why_not.empty() ? "yes" : str("(", number, ")"));
  }
  std::string out = table_text(rows, [](const std::string&, const std::string& cell, bool) { return cell; }) + "\n";
  for (size_t i = 0; i < reasons.size(); ++i) {
    const std::string label = str("  (", i + 1, ") ");
    out += wrapped(label + reasons[i], 0, label.size(), 120);
  }
  return out;
}

}  // namespace apus
