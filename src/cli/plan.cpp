// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/plan_spec.h"
#include "doctor/device_words.h"
#include "models/spec/presets.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kDoesNotFit = 5;  // as Fault::Device: the device is too small

// The commands that can be planned.
std::vector<std::string> planned_commands() {
  std::vector<std::string> names;
  for (const Command* command : all_commands())
    if (command->info.name != "plan" && command->make()->planned) names.push_back(command->info.name);
  return names;
}

// --command among the arguments, wherever it stands. An algorithm is of the command that has its option.
struct CommandChoice {
  std::string command, rlhf_type;
  bool ignore_others = true;
  void fields(OptionTable& v) {
    v("command", command, "the command");
    v("rlhf_type", rlhf_type, "the algorithm");
    v("", ignore_others, "").forgives_unknown();
  }
};

std::string command_asked_for(const std::vector<std::string>& arguments) {
  CommandChoice choice;
  OptionTable::of(choice).parse(arguments);
  if (!choice.command.empty()) return choice.command;
  return choice.rlhf_type.empty() ? "sft" : "rlhf";
}

}  // namespace

PlanSpec plan_spec(const PlanOptions& o) {
  const std::string& model = o.preset.empty() ? o.run.model->model : o.preset;
  PlanSpec spec = o.run.spec(config_named(model), device_facts(o.run.model->device), o.devices);
  spec.title = model, spec.stack = o.stack;
  require(o.stack == "apus" || (spec.command == "sft" && spec.tuning.lora), Fault::Usage,
          "--stack ms-swift is known for --command sft --tuner_type lora only: what was measured of it");
  require(!o.search || !spec.inference, Fault::Usage,
          "--search tries micro-batches, recompute, sharding and meshes, which are of training");
  return spec;
}

void PlanOptions::fields(OptionTable& v) {
  v.group("Plan");
  v("command", of, "the command that is planned, whose flags count").common().choices(planned_commands());
  v("preset", preset, "a known shape in place of --model: " + join(preset_names())).common();
  v("devices", devices, "how many devices: training splits its data over them, inference its layers")
      .common()
      .at_least(1)
      .at_most(65536);
  v("search", search, "list micro-batches, recompute, sharding and meshes that fit, fastest first").common();
  v("json", as_json, "print the plan as JSON");
  v("stack", stack, "ms-swift: the same run under PyTorch, transformers, peft and DeepSpeed")
      .choices({"apus", "ms-swift"});
  run.fields(v);
  for (const auto& option : v.options()) option->is_required = false;  // a plan reads no rows
  v.at("model").help = "folder with a config.json, the file itself, or the name of a known shape (qwen2.5-7b)";
  v.at("device").help =
      str("910B3, A100-80G, H200, ... (see docs/plan.md); auto, ", join(device_words()), ": what this machine has");
}

void PlanOptions::resolve(OptionTable& v) {
  require(v.given("model") == preset.empty(), Fault::Usage,
          "give either --model (a folder, or a known shape's name) or --preset NAME");
  run.prepare(v, devices);
}

namespace {

std::shared_ptr<PlanOptions> options_for(const std::vector<std::string>& arguments) {
  const std::string name = command_asked_for(arguments);
  const Command* command = name == "plan" ? nullptr : find_command(name);
  const auto planned = command ? command->make(arguments)->planned : std::nullopt;
  require(planned.has_value(), Fault::Usage, "--command ", name,
          " cannot be planned; possible: ", join(planned_commands()));
  auto options = std::make_shared<PlanOptions>(*planned);
  options->arguments = arguments;
  return options;
}

// The same plan with further flags; nothing where they do not go together with the others.
std::optional<PlanSpec> with_flags(const PlanOptions& o, const std::vector<std::string>& flags) {
  std::vector<std::string> words = o.arguments;
  words.insert(words.end(), flags.begin(), flags.end());
  try {
    const auto other = options_for(words);
    OptionTable table = OptionTable::of(*other);
    table.parse(words);
    other->resolve(table);
    return plan_spec(*other);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool says(const PlanOptions& o, const char* flag) {
  return std::find(o.arguments.begin(), o.arguments.end(), flag) != o.arguments.end();
}

// Meshes too, unless the flags say one; where nothing fits moments in fewer bits, unless they name an optimizer; and
// where that does not help, state and weights in the host's memory.
std::vector<Strategy> searched(const PlanOptions& o, const PlanSpec& spec) {
  if (spec.share.any()) return search_strategies(spec, {});
  std::vector<Strategy> found = search_strategies(spec);
  if (spec.train.devices == 1 && spec.tuning.lora) return found;
  std::vector<std::string> optimizers = {""};
  if (!spec.tuning.lora && !says(o, "--optim") && !says(o, "--optimizer"))
    optimizers.insert(optimizers.end(), {"adamw_8bit", "adamw_4bit"});
  const auto try_with = [&](const std::vector<std::string>& flags) {
    const auto other = with_flags(o, flags);
    if (!other) return;
    const std::vector<Strategy> more = search_strategies(*other, flags);
    found.insert(found.end(), more.begin(), more.end());
  };
  for (const std::string& optimizer : optimizers) {
    if (!optimizer.empty() && !found.empty()) break;
    for (const std::vector<std::string>& flags : meshes_to_try(spec, optimizer)) try_with(flags);
  }
  if (!found.empty() || spec.train.devices == 1) return found;
  for (const char* sharding : {"zero2_offload", "zero3_offload"}) try_with({"--deepspeed", sharding});
  return found;
}

int run(const PlanOptions& o) {
  const PlanSpec spec = plan_spec(o);
  if (o.search) {
    std::vector<Strategy> all = searched(o, spec);
    fastest_first(all);
    const std::string text = o.as_json ? json_text(strategies_json(all), 2) + "\n" : strategies_text(all, spec);
    std::fputs(text.c_str(), stdout);
    return all.empty() ? kDoesNotFit : 0;
  }
  const Plan plan = make_plan(spec);
  std::fputs((o.as_json ? json_text(plan_json(plan), 2) + "\n" : plan_text(plan)).c_str(), stdout);
  return plan.fits ? 0 : kDoesNotFit;
}

const bool plan_registered = [] {
  register_command(
      {.info = {.name = "plan",
                .group = "Machine",
                .summary = "memory and speed of a run before it starts; exit code 0: it fits, 5: it does not",
                .examples = {"plan --model qwen2.5-7b --tuner_type lora --device 910B3 --max_length 2048",
                             "plan --preset qwen2.5-32b --tuner_type full --device 910B3 --devices 8 --deepspeed zero3",
                             "plan --command rlhf --model qwen3-8b --tuner_type lora --device H200",
                             "plan --model DIR --command infer --device A100-40G --max_model_len 8192",
                             "plan --model qwen3-8b --tuner_type full --device H200 --devices 8 --search"}},
       .maker = [](const std::vector<std::string>& arguments) {
         return command_instance(options_for(arguments), run);
       }});
  return true;
}();
}  // namespace

}  // namespace apus
