// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/gguf_folder.h"
#include "cli/command.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "cli/shared_parts.h"
#include "gguf/import.h"
#include "models/spec/presets.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kDoesNotFit = 5;  // as Fault::Device: the device is too small

// The config of a folder, a config.json, or a known shape's name, which may carry its maker: Qwen/Qwen2.5-7B-Instruct.
Json config_of(const std::string& model) {
  std::error_code code;
  if (const auto gguf = gguf_meant(model)) return config_of_gguf(*GgufModel::open(fs::canonical(*gguf)));
  const bool folder = fs::is_directory(model, code);
  const fs::path path = folder ? fs::path(model) / "config.json" : fs::path(model);
  if (fs::is_regular_file(path, code)) return parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
  require(!folder, Fault::Model, "--model ", model, " holds no config.json");
  const bool named = !path.is_absolute() && model[0] != '.' && std::count(model.begin(), model.end(), '/') < 2;
  require(named, Fault::Usage, "--model ", model, ": there is no such folder; give one, or the name of a known shape");
  std::string name = fs::path(model).filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* ending : {"-instruct", "-base", "-chat"})
    if (name.ends_with(ending)) name = name.substr(0, name.size() - std::string(ending).size());
  return preset_config(name);
}

// What alignment adds: a second answer to a row, a frozen reference (where there is no adapter that could be switched
// off), a cache to generate with.
void add_alignment(const PlanOptions& o, PlanSpec& spec) {
  const std::string& type = o.rlhf_type;
  const bool pairs = type == "dpo" || type == "simpo" || type == "orpo" || type == "cpo" || type == "rm";
  spec.row_copies = pairs ? 2 : 1;
  spec.train.frozen_copies = !spec.tuning.lora && (type == "dpo" || type == "kto" || type == "grpo") ? 1 : 0;
  if (type != "grpo") return;
  spec.train.rolls_out = spec.train.all_read_answers = true;
  spec.row_tokens += o.max_completion_length;
  spec.train.cache_bytes = static_cast<double>(o.num_generations * spec.rows * spec.row_tokens) *
                           cache_bytes_per_token(spec.model, spec.element());
  spec.assumptions.push_back(str("answers of up to ", o.max_completion_length, " tokens, ", o.num_generations,
                                 " to a prompt, generated on the same devices"));
}

}  // namespace

PlanSpec plan_spec(const PlanOptions& o) {
  const DeviceFacts device = device_facts(o.device);
  const Json config = config_of(o.preset.empty() ? o.model : o.preset);
  PlanSpec spec = o.of == "score"                       ? scoring_spec(o, o.engine.max_step_tokens, config, device)
                  : o.of == "infer" || o.of == "deploy" ? inference_spec(o, o, config, device)
                                                        : training_spec({o, o, o, o, o}, config, device, o.devices);
  hold_quantised(spec, config, o.quantise);
  if (o.shares_parts()) {
    const std::string wrong = why_not({.tensor = o.tensor_model_parallel_size,
                                       .experts = o.expert_model_parallel_size,
                                       .row_sharers = o.sequence_parallel_size * o.tensor_model_parallel_size,
                                       .stages = o.pipeline_model_parallel_size,
                                       .dora = o.use_dora},
                                      spec.model, "the model");
    require(wrong.empty(), Fault::Usage, wrong);
  }
  spec.title = o.preset.empty() ? o.model : o.preset, spec.command = o.of, spec.stack = o.stack;
  if (spec.inference) {
    spec.train.devices = static_cast<int>(o.devices);
    if (o.shares_parts()) share_out(spec, o.tensor_model_parallel_size, o.expert_model_parallel_size);
    return spec;
  }
  spec.train.accumulation = o.accumulation(std::max<int64_t>(1, o.devices / o.row_sharers()));
  if (o.of == "rlhf") add_alignment(o, spec), spec.command = "rlhf " + o.rlhf_type;
  spec.count_tokens();
  return spec;
}

void PlanOptions::fields(OptionTable& v) {
  v.group("Plan");
  v("command", of, "the command that is planned, whose flags count")
      .common()
      .choices({"sft", "pt", "rlhf", "infer", "deploy", "score"});
  v("preset", preset, "a known shape in place of --model: " + join(preset_names())).common();
  v("devices", devices, "how many devices: training splits its data over them, inference its layers")
      .common()
      .at_least(1)
      .at_most(65536);
  v("search", search, "list micro-batches, recompute and sharding that fit, fastest first").common();
  v("json", as_json, "print the plan as JSON");
  v("stack", stack, "ms-swift: the same run under PyTorch, transformers, peft and DeepSpeed")
      .choices({"apus", "ms-swift"});
  v("rlhf_type", rlhf_type, "--command rlhf: the algorithm")
      .common()
      .choices({"grpo", "dpo", "kto", "orpo", "simpo", "cpo", "rm"});
  v("num_generations", num_generations, "grpo: answers to a prompt").at_least(1);
  v("max_completion_length", max_completion_length, "grpo: longest answer in tokens").at_least(1);
  TrainCommandOptions::fields(v);
  EngineOptions::fields(v);
  for (const char* name : {"device_map", "max_memory"})
    v.at(name).refusal = "a plan is of one device; --dry_run true of infer, score and deploy says what lies where";
  v.at("model").help = "folder with a config.json, the file itself, or the name of a known shape (qwen2.5-7b)";
  v.at("device").help =
      "910B3, A100-80G, H200, ... (see docs/plan.md); auto, npu, cuda: what this machine has; cpu: its processor";
}

void PlanOptions::resolve(OptionTable& v) {
  TemplateOptions::resolve(v);
  resolve_sharding(v);
}

void PlanOptions::check() const {
  require(model.empty() != preset.empty(), Fault::Usage,
          "give either --model (a folder, or a known shape's name) or --preset NAME");
  TunerOptions::check();
  check_update_in_backward(devices);
  require(
      !search || !shares_parts(), Fault::Usage,
      "--search tries micro-batches, recompute and --deepspeed, not meshes: leave out --tensor_model_parallel_size, "
      "--expert_model_parallel_size and --pipeline_model_parallel_size");
  require(of == "sft" || of == "pt" || of == "rlhf" || pipeline_model_parallel_size == 1, Fault::Usage,
          "--pipeline_model_parallel_size is of training: answers take --tensor_model_parallel_size and "
          "--expert_model_parallel_size");
  require(!shares_parts() || devices % least_ranks() == 0, Fault::Usage, "a model in such parts needs ", least_ranks(),
          " devices, or a multiple: give --devices ", least_ranks());
  const bool matrices_alone = expert_model_parallel_size * pipeline_model_parallel_size == 1;
  require(!shares_parts() || matrices_alone || sharding().stage < (pipeline_model_parallel_size > 1 ? 2 : 3),
          Fault::Usage, "weights that are shared out by rows as well are not available: give --deepspeed zero1");
  check_sequence_parallel(devices);
  require(stack == "apus" || (of == "sft" && tuner_type == "lora"), Fault::Usage,
          "--stack ms-swift is known for --command sft --tuner_type lora only: what was measured of it");
  require(!search || !(of == "infer" || of == "deploy" || of == "score"), Fault::Usage,
          "--search tries micro-batches, recompute and sharding, which are of training");
  check_sharding(devices);
}

void PlanOptions::rehearse(Rehearsal& r) const { r.plan(plan_spec(*this)); }

namespace {

int run(const PlanOptions& o) {
  const PlanSpec spec = plan_spec(o);
  if (o.search) {
    const auto all = search_strategies(spec);
    const std::string text = o.as_json ? json_text(strategies_json(all), 2) + "\n" : strategies_text(all, spec);
    std::fputs(text.c_str(), stdout);
    return all.empty() ? kDoesNotFit : 0;
  }
  const Plan plan = make_plan(spec);
  std::fputs((o.as_json ? json_text(plan_json(plan), 2) + "\n" : plan_text(plan)).c_str(), stdout);
  return plan.fits ? 0 : kDoesNotFit;
}

const RegisterCommand<PlanOptions> plan_command(
    {.name = "plan",
     .group = "Machine",
     .summary = "memory and speed of a run before it starts; exit code 0: it fits, 5: it does not",
     .examples = {"plan --model qwen2.5-7b --tuner_type lora --device 910B3 --max_length 2048",
                  "plan --preset qwen2.5-32b --tuner_type full --device 910B3 --devices 8 --deepspeed zero3",
                  "plan --model DIR --command infer --device A100-40G --max_model_len 8192",
                  "plan --model qwen3-8b --tuner_type full --device H200 --devices 8 --search"}},
    run);
}  // namespace

}  // namespace apus
