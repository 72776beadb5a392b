// SPDX-License-Identifier: Apache-2.0
#include "cli/sft.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/adapter_config.h"
#include "cli/command.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "data/source/dataset_ref.h"
#include "dist/launch/environment.h"

namespace apus {
namespace fs = std::filesystem;

SftOptions::SftOptions() {
  max_new_tokens = 64;
  temperature = 0;
}

int64_t SftOptions::accumulation(int64_t ranks) const {
  const int64_t rows = per_device_train_batch_size * ranks;
  return gradient_accumulation_steps.value_or(std::max<int64_t>(1, (16 + rows - 1) / rows));
}

fs::path SftOptions::output_root() const {
  const fs::path dir = fs::path(model_name).lexically_normal();
  const fs::path name = dir.filename().empty() ? dir.parent_path().filename() : dir.filename();
  return fs::absolute(output_dir ? fs::path(*output_dir) : "output" / name).lexically_normal();
}

fs::path SftOptions::ranks_dir() const { return output_root() / "logs" / local_time("%Y%m%d-%H%M%S"); }

void SftOptions::fields(OptionTable& v) {
  ModelOptions::fields(v);
  v.refuse({"device_map", "max_memory"},
           "training keeps the whole model on each device: --device chooses one, NPROC_PER_NODE=8 trains on eight at "
           "once, each with its share of the rows. "
           "infer, score and deploy run a model that is spread over devices");
  TunerOptions::fields(v);
  DataOptions::fields(v);
  training_template_fields(v, *this, *this);
  TrainOptions::fields(v);
  GenerationOptions::fields(v);
  v.at("max_new_tokens").help = "--predict_with_generate: longest answer in tokens";
  v.at("max_new_tokens").default_text.clear(), v.at("temperature").default_text.clear();
  for (const char* name : {"stream", "stop_words", "logprobs", "top_logprobs"})
    v.at(name).target = {}, v.at(name).no_effect = "answers of an evaluation are only compared";
  RunOptions::fields(v);
}

namespace {

// Settings of the checkpoint that is gone on from, where the user gave none (--load_args).
void take_saved_args(SftOptions& o, OptionTable& v) {
  const fs::path from = !o.resume_from_checkpoint.empty() ? fs::path(o.resume_from_checkpoint)
                        : !o.adapters.empty()             ? fs::path(o.adapters[0])
                                                          : fs::path(o.model);
  const fs::path file = from / "args.json";
  require(fs::exists(file), Fault::Usage, "--load_args true: ", file.string(), " does not exist");
  const Json saved = parse_json(read_file(file, 64 << 20), file.string());
  const std::vector<std::string> model_flags = {
      "tuner_type",      "task_type", "model",          "model_type",         "torch_dtype",     "max_model_len",
      "chat_template",   "template",  "system",         "use_chat_template",  "response_prefix", "chat_template_kwargs",
      "enable_thinking", "use_hf",    "model_revision", "truncation_strategy"};
  const std::vector<std::string> data_flags = {"dataset",
                                               "val_dataset",
                                               "cached_dataset",
                                               "cached_val_dataset",
                                               "split_dataset_ratio",
                                               "data_seed",
                                               "dataset_shuffle",
                                               "val_dataset_shuffle",
                                               "streaming",
                                               "columns",
                                               "interleave_prob",
                                               "stopping_strategy",
                                               "shuffle_buffer_size",
                                               "packing",
                                               "packing_length",
                                               "packing_strategy",
                                               "max_length",
                                               "loss_scale",
                                               "strict"};
  const auto take = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (saved.contains(name) && !saved[name].is_null() && !v.given(name) && fits_here(saved, name, v))
        v.set(name, saved[name]);
  };
  take(model_flags);
  if (o.load_data_args) take(data_flags);
  log_info("Successfully loaded ", file.string());
}

// What args.json names is to be found from any folder: paths here become absolute, hub ids stay.
void make_absolute(Json& all) {
  const auto path = [](const std::string& text) {
    std::error_code code;
    return !text.empty() && fs::exists(text, code) ? fs::absolute(text).lexically_normal().string() : text;
  };
  for (const char* name : {"model", "resume_from_checkpoint"}) all[name] = path(all[name].get<std::string>());
  for (const char* name : {"adapters", "custom_dataset_info", "cached_dataset", "cached_val_dataset"})
    for (Json& text : all[name]) text = path(text.get<std::string>());
  for (const char* name : {"dataset", "val_dataset"})
    for (Json& text : all[name]) {
      const DatasetRef ref = parse_dataset_ref(text.get<std::string>());  // an id, then :subset#count
      const bool pattern = ref.id.find_first_of("*?[") != std::string::npos;
      if (ref.hub != DatasetRef::Hub::Default || !(pattern || fs::exists(ref.id))) continue;
      text = fs::absolute(ref.id).lexically_normal().string() + ref.text.substr(ref.id.size());
    }
}

// The last checkpoint in a run's folder; empty when there is none.
std::string newest_checkpoint(const fs::path& run) {
  const std::string prefix = "checkpoint-";
  std::pair<long, std::string> newest{-1, ""};
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(run, code)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix) && entry.is_directory(code))
      newest = std::max(newest, {std::strtol(name.c_str() + prefix.size(), nullptr, 10), name});
  }
  return newest.second;
}

}  // namespace

void SftOptions::resolve(OptionTable& v) {
  if (load_args || load_data_args) take_saved_args(*this, v);
  model_name = model;
  HubFlags::resolve();
  TemplateOptions::resolve(v);
  TrainOptions::resolve(v);
  if (!lora())
    for (const char* name : {"lora_rank", "lora_alpha", "lora_dropout", "lora_dtype", "lora_bias", "target_modules",
                             "target_regex", "modules_to_save", "init_weights"})
      if (v.given(name)) v.notes.push_back(str("--", name, " has no effect with --tuner_type full"));
  all = v.json();
  if (!builtin.empty()) all["chat_template"] = "";  // its text; the name says enough
  all["apus_version"] = APUS_VERSION;
  make_absolute(all);
  all["learning_rate"] = lr(), all["output_dir"] = output_root().string();
  all["eval_strategy"] = eval_strategy.value_or(save_strategy), all["eval_steps"] = eval_steps.value_or(save_steps);
  all["hub_token"] = nullptr;  // no secrets in args.json
  config_file = v.config_file;
}

void SftOptions::check() const {
  ModelOptions::check();
  DataOptions::check();
  TunerOptions::check();
  TrainOptions::check();
  const std::string newest = resume_from_checkpoint.empty() ? "" : newest_checkpoint(resume_from_checkpoint);
  require(newest.empty(), Fault::Usage, "--resume_from_checkpoint ", resume_from_checkpoint,
          " is the folder of a run; to go on, name one of its checkpoints: ",
          (fs::path(resume_from_checkpoint) / newest).string());
  if (!resume_from_checkpoint.empty())
    require(lora() == is_adapter_dir(resume_from_checkpoint), Fault::Usage, "--resume_from_checkpoint ",
            resume_from_checkpoint,
            lora() ? " holds no adapter; was it trained with --tuner_type full?"
                   : " holds an adapter; was it trained with --tuner_type lora?");
  require(!streaming || max_steps > 0 || max_epochs, Fault::Usage,
          "--streaming true needs --max_steps or --max_epochs: the length of the data is not known");
  require(truncation_strategy != "split" || command == "pt", Fault::Usage,
          "--truncation_strategy split cuts plain text and belongs to apus pt; use delete, left or right");
  require(!predict_with_generate || loss_scale.rfind("all", 0) != 0, Fault::Usage,
          "--predict_with_generate needs rows with questions and answers; with --loss_scale ", loss_scale,
          " there are no questions");
  require(optimizer.value_or("default") != "lorap" || lorap_lr_ratio, Fault::Usage,
          "--optimizer lorap needs --lorap_lr_ratio, e.g. 16");
  const auto launched = read_launch(process_environment());
  check_update_in_backward(launched ? launched->ranks * launched->nodes : read_rank(process_environment()).world);
}

void SftOptions::check_update_in_backward(int64_t ranks) const {
  if (!update_in_backward) return;
  require(max_grad_norm == 0, Fault::Usage,
          "--update_in_backward true updates a weight before the gradients of others are known, so they cannot be "
          "scaled to a common norm: give --max_grad_norm 0 with it, or leave it out");
  require(ranks == 1, Fault::Usage, "--update_in_backward true is for one process, not for ", ranks,
          ", whose gradients would have to be summed first: leave it out, or train in one");
  require(accumulation(ranks) == 1, Fault::Usage,
          "--update_in_backward true keeps no gradients that micro-batches could add up in: give "
          "--gradient_accumulation_steps 1 with it (it is ",
          accumulation(ranks), gradient_accumulation_steps ? "" : " when it is not given",
          "); --per_device_train_batch_size and --packing true let an update see more rows");
}

PtOptions::PtOptions() {
  command = "pt";
  use_chat_template = false;
  loss_scale = "all";
}

void PtOptions::fields(OptionTable& v) { SftOptions::fields(v); }

void SftOptions::rehearse(Rehearsal& r) const {
  const Json config = r.model(!resume_from_checkpoint.empty() && !lora() ? resume_from_checkpoint : model);
  r.adapters(adapters);
  r.tokenizer(model);
  if (use_chat_template) r.chat_template(chat_template, model);
  std::string rows;
  int64_t longest = 0;
  const SftRehearsal asked{*this, rows, longest};
  run_heavy("sft rehearsal", &asked);
  r.right("rows", rows);
  const ModelFacts facts = model_facts(config);
  r.output(output_dir.value_or("output"), lora() ? 0 : facts.parameters() * (facts.dtype == "float32" ? 4 : 2));
  const auto launched = read_launch(process_environment());
  const int64_t ranks = launched ? launched->ranks * launched->nodes : 1;
  PlanSpec spec = training_spec({*this, *this, *this, *this, *this}, config, device_facts(device), ranks);
  spec.command = command, spec.train.accumulation = accumulation(ranks);
  if (longest > 0 && !packing) {  // known exactly, instead of assumed
    spec.row_tokens = longest, spec.assumptions.clear();
    spec.train.tokens = static_cast<double>(spec.rows * spec.row_tokens);
  }
  r.plan(spec);
}

namespace {
int run_sft(const SftOptions& options) { return run_heavy("sft", &options); }
int run_pt(const PtOptions& options) { return run_heavy("sft", static_cast<const SftOptions*>(&options)); }
const RegisterCommand<SftOptions> sft(
    {.name = "sft",
     .group = "Train",
     .summary = "fine-tune a model on conversations: LoRA or all weights",
     .examples = {"sft --model DIR --dataset rows.jsonl --output_dir out",
                  "sft --model DIR --dataset rows.jsonl --tuner_type full --learning_rate 1e-5 --num_train_epochs 1",
                  "sft --model DIR --dataset rows.jsonl --resume_from_checkpoint out/v0-.../checkpoint-500"}},
    run_sft);
const RegisterCommand<PtOptions> pt(
    {.name = "pt",
     .group = "Train",
     .summary = "go on pre-training a model on plain text",
     .examples =
         {"pt --model DIR --dataset texts.jsonl --packing true --max_length 2048 --tuner_type full --output_dir out"}},
    run_pt);
}  // namespace

}  // namespace apus
