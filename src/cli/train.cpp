// SPDX-License-Identifier: Apache-2.0
#include "cli/train.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/adapted_folder.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/run_folder.h"
#include "cli/command.h"
#include "cli/foreign_flags.h"
#include "cli/other_tokenizers.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "cli/started_ranks.h"
#include "data/source/dataset_ref.h"
#include "dist/launch/environment.h"
#include "parallel/placement/stages.h"
#include "train/options/optimizer_info.h"

namespace apus {
namespace fs = std::filesystem;

TrainRun::TrainRun(std::string name) : algorithm(std::move(name)), own(algorithm_info(algorithm).options()) {
  answers.max_new_tokens = 64;
  answers.temperature = 0;
}

fs::path TrainRun::output_root() const {
  const fs::path dir = fs::path(model_as_given).lexically_normal();
  const fs::path name = dir.filename().empty() ? dir.parent_path().filename() : dir.filename();
  return fs::absolute(folder.output_dir ? fs::path(*folder.output_dir) : "output" / name).lexically_normal();
}

fs::path TrainRun::ranks_dir() const { return output_root() / "logs" / local_time("%Y%m%d-%H%M%S"); }

namespace {

// A script may say what only other algorithms read. Among the tasks of one command it is a mistake.
void options_of_others(OptionTable& v, const std::string& chosen) {
  const std::string& command = algorithm_info(chosen).command;
  const bool tasks = command == "sft" || chosen == "sft";
  std::set<std::string> here;
  for (const auto& option : v.options()) {
    here.insert(option->name);
    for (const auto& [spelling, note] : option->aliases) here.insert(spelling);
  }
  std::map<std::string, std::vector<std::string>> readers;  // of an option that is none here
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all()) {
    if (name == chosen || (tasks && info.command != "sft" && name != "sft")) continue;
    AlgorithmOptions own = info.options();
    OptionTable theirs;
    own.fields(theirs);
    if (ReferenceOptions reference; own.knows_reference()) reference.fields(theirs);
    for (const auto& option : theirs.options())
      if (!here.count(option->name) && option->refusal.empty()) readers[option->name].push_back(info.asked_as(name));
  }
  for (const auto& [name, whose] : readers) {
    const std::string why = str("it is of ", join(whose), ", and this is ", chosen);
    tasks ? v.refuse({name}, why) : v.no_effect({name}, why);
  }
}

}  // namespace

void TrainRun::fields(OptionTable& v) {
  model.fields(v);
  v.at("task_type").restored("model");
  quantise.honour(v);
  v.refuse({"device_map", "max_memory"},
           "training keeps the whole model on each device: --device chooses one, NPROC_PER_NODE=8 trains on eight at "
           "once, each with its share of the rows. "
           "infer, score and deploy run a model that is spread over devices");
  tuner.fields(v);
  data.fields(v);
  training_template_fields(v, prompt, data);
  v.group("Training");
  folder.fields(v);
  loop.fields(v);
  optimisation.fields(v);
  v.group("Saving, evaluation, log");
  loop.saving_fields(v);
  folder.saving_fields(v);
  push.fields(v);
  mesh.fields(v);
  foreign_training_fields(v);
  answers.fields(v);
  v.at("max_new_tokens").help = "--predict_with_generate: longest answer in tokens";
  v.at("max_new_tokens").default_text.clear(), v.at("temperature").default_text.clear();
  each_sampling_field([&](const auto& field) {  // what is trained is what answers: nothing of a checkpoint's habits
    if (field.of_checkpoints && std::string_view(field.name) != "temperature")
      v.at(field.name).shown_default(str(Sampling().*field.value));
  });
  for (const char* name : {"max_new_tokens", "temperature", "top_p"}) v.at(name).is_common = false;
  for (const char* name : {"stream", "stop_words", "logprobs", "top_logprobs"})
    v.at(name).target = {}, v.at(name).no_effect = "answers of an evaluation are only compared";
  benchmarks.fields(v);
  algorithm_fields(v);
  common.fields(v);
  const AlgorithmInfo& info = algorithm_info(algorithm);
  if (!info.command.empty())
    v.at("predict_with_generate")
        .refused(str("rows of ", info.asked_as(algorithm), " are not questions with one right answer"));
  if (!info.command.empty() || algorithm == "sft")
    options_of_others(v, algorithm);
  else
    v.refuse({"num_labels", "problem_type"}, "they are of apus sft --task_type seq_cls and token_cls");
  if (info.asks_rows) {
    for (const char* name : {"packing", "cached_dataset", "cached_val_dataset"})
      v.at(name).refused("rows are questions here, and answers of any length are trained on without padding");
  }
  if (info.rolls_out()) {
    v.at("temperature").common().help = "temperature of the answers that are rolled out";
    v.at("max_new_tokens").refused("--max_completion_length says how long an answer may be");
  }
  for (const auto& [name, value] : info.defaults.items()) v.set(name, value);
}

void TrainRun::algorithm_fields(OptionTable& v) {
  const std::string& command = algorithm_info(algorithm).command;
  if (command == "sft" || algorithm == "sft") {
    std::vector<std::string> tasks = algorithms_of("sft");
    tasks.insert(tasks.begin(), "causal_lm");
    v.at("task_type").choices(std::move(tasks)).must_match();
    v.at("task_type").help = "what the model is to give: words, labels, a vector, a score; --help shows its options";
  } else if (!command.empty()) {
    v.group("Algorithm");
    v(chooser_of(command).c_str(), algorithm, "the algorithm: its options are those shown here")
        .choices(algorithms_of(command))
        .must_match();
  }
  own.fields(v);
  if (own.knows_reference()) v.include(reference);
}

namespace {

// Settings of the checkpoint that is gone on from, where the user gave none (--load_args).
void take_saved_args(TrainRun& o, OptionTable& v) {
  const fs::path from = !o.folder.resume_from_checkpoint.empty() ? fs::path(o.folder.resume_from_checkpoint)
                        : !o.tuner.adapters.empty()              ? fs::path(o.tuner.adapters[0])
                                                                 : fs::path(o.model.model);
  const fs::path file = from / "args.json";
  require(fs::exists(file), Fault::Usage, "--load_args true: ", file.string(), " does not exist");
  const Json saved = parse_json(read_file(file, 64 << 20), file.string());
  const auto take = [&](const char* kind) {
    for (const Option* option : v.with(&Option::restored_kind, kind))
      if (const std::string& name = option->name;
          saved.contains(name) && !saved[name].is_null() && !v.given(name) && fits_here(saved, name, v))
        v.set(name, saved[name]);
  };
  take("model");
  if (o.folder.load_data_args) take("data");
  log_info("Successfully loaded ", file.string());
}

// What args.json names is to be found from any folder: paths here become absolute, hub ids stay.
void make_absolute(Json& all) {
  const auto path = [](const std::string& text) {
    std::error_code code;
    return !text.empty() && fs::exists(text, code) ? fs::absolute(text).lexically_normal().string() : text;
  };
  for (const char* name : {"model", "resume_from_checkpoint"}) all[name] = path(all[name].get<std::string>());
  for (const char* name : {"adapters", "custom_dataset_info", "cached_dataset", "cached_val_dataset", "ref_adapters",
                           "external_plugins", "reward_model", "reward_adapters", "teacher_adapters"})
    if (all.contains(name))
      for (Json& text : all[name]) text = path(text.get<std::string>());
  for (const char* name : {"ref_model", "teacher_model", "value_model"})
    if (all.contains(name) && all[name].is_string()) all[name] = path(all[name]);
  for (const char* name : {"dataset", "val_dataset"})
    for (Json& text : all[name]) {
      const DatasetRef ref = parse_dataset_ref(text.get<std::string>());  // an id, then :subset#count
      const bool pattern = ref.id.find_first_of("*?[") != std::string::npos;
      if (ref.hub != DatasetRef::Hub::Default || !(pattern || fs::exists(ref.id))) continue;
      text = fs::absolute(ref.id).lexically_normal().string() + ref.text.substr(ref.id.size());
    }
}

}  // namespace

// --resume_from_checkpoint auto: the newest whole checkpoint, or a new run where there is none.
void TrainRun::find_checkpoint() {
  static const std::set<std::string> words = {"auto", "true", "last"};
  std::error_code code;
  if (!words.count(folder.resume_from_checkpoint) || fs::is_directory(folder.resume_from_checkpoint, code)) return;
  std::vector<std::string> remarks;
  const auto newest = newest_whole_checkpoint(output_root(), folder.add_version, !folder.resume_only_model, remarks);
  for (const std::string& remark : remarks) log_warning(remark);
  log_info("--resume_from_checkpoint ", folder.resume_from_checkpoint, ": ",
           newest ? str("the run goes on from ", newest->string())
                  : str("there is no whole checkpoint in ", output_root().string(), ", so a new run begins"));
  begins_anew = !newest;
  folder.resume_from_checkpoint = newest ? newest->string() : "";
  if (begins_anew) folder.resume_only_model = folder.ignore_data_skip = false;
}

// From the newest checkpoint that it wrote itself; before the first, as it began.
std::vector<std::string> TrainRun::again(std::vector<std::string> given, fs::file_time_type began) const {
  std::vector<std::string> remarks;
  const auto newest = newest_whole_checkpoint(output_root(), folder.add_version, true, remarks);
  std::error_code code;
  const bool own = newest && (!folder.add_version || fs::last_write_time(*newest, code) >= began);
  if (!own && folder.add_version) return given;
  given.insert(given.end(), {"--resume_from_checkpoint", own ? newest->string() : "auto"});  // the last one counts
  return given;
}

void TrainRun::resolve(OptionTable& v) {
  model_as_given = model.model;
  find_checkpoint();
  if (folder.load_args || folder.load_data_args) take_saved_args(*this, v);
  const std::string& command = algorithm_info(algorithm).command;
  require((command != "sft" && algorithm != "sft") || model.task_type == (command == "sft" ? algorithm : "causal_lm"),
          Fault::Usage, "args.json: the run had --task_type ", model.task_type, ": give it here too");
  model.model = model_meant(model.model, v);
  for (std::string& dir : tuner.adapters) dir = adapter_meant(dir, v);
  model_as_given = model.model;
  template_said = v.given("use_chat_template");
  model.resolve();
  prompt.resolve(v);
  folder.resolve(v);
  mesh.resolve(v);
  if (loop.save_total_limit.value_or(1) <= 0) loop.save_total_limit.reset();  // all stay
  if (tuner.tuner_type == "lora_llm") tuner.tuner_type = "lora";              // the whole model is the language model
  tuner.kinds.note_others(v, tuner.tuner_type);
  if (!tuner.lora())
    for (const char* name : {"lora_dtype", "lora_bias", "target_modules", "target_regex", "target_parameters",
                             "modules_to_save", "trainable_token_indices", "init_weights"})
      if (v.given(name)) v.notes.push_back(str("--", name, " has no effect with --tuner_type ", tuner.tuner_type));
  model.new_special_tokens =
      listed_tokens(model.new_special_tokens);  // args.json names them, not the file they stood in
  all = v.json();
  if (!prompt.builtin.empty()) all["chat_template"] = "";  // its text; the name says enough
  all["apus_version"] = APUS_VERSION;
  make_absolute(all);
  all["learning_rate"] = lr(), all["output_dir"] = output_root().string();
  all["eval_strategy"] = loop.eval_strategy.value_or(loop.save_strategy),
  all["eval_steps"] = loop.eval_steps.value_or(loop.save_steps);
  if (command == "rlhf" && algorithm_info(algorithm).head == Head::Scalar) all["task_type"] = "seq_cls";
  all["hub_token"] = nullptr;  // no secrets in args.json
  config_file = v.config_file;
  remember_settings(v);
}

// The tuner's settings are those of its adapter; a full run has none to compare.
void TrainRun::remember_settings(const OptionTable& v) {
  exact = noted = Json::object();
  for (const Option* option : v.with(&Option::is_exact))
    if (option->group != "Tuner" || option->name == "tuner_type" ||
        ((tuner.lora() || tuner.grows()) && tuner.kinds.reads(option->name, tuner.tuner_type)))
      exact[option->name] = all[option->name];
  for (const Option* option : v.with(&Option::is_noted)) noted[option->name] = all[option->name];
}

// A rehearsal that is started as one process stands for as many as share a row, or a group of answers.
int64_t TrainRun::ranks() const {
  const int64_t ranks = started_ranks();
  return ranks == 1 && common.dry_run ? mesh.least_ranks() * own.group_sharers(loop, 1) : ranks;
}

void TrainRun::check() const {
  model.check();
  quantise.check();
  const int64_t ranks = this->ranks();
  data.check(own.brings_rows());
  tuner.check();
  loop.check();
  folder.check();
  optimisation.check();
  own.check(loop, std::max<int64_t>(1, ranks / mesh.row_sharers()));
  if (own.knows_reference()) reference.check(own.uses_reference());
  require(!reference.precompute_ref_log_probs || !data.streaming, Fault::Usage,
          "--precompute_ref_log_probs asks the reference of every row beforehand: leave it out with --streaming true");
  const bool beside_others = folder.resume_from_checkpoint.empty() && !folder.add_version && !begins_anew;
  if (const auto there = list_checkpoints(output_root()); beside_others && !there.empty())
    fail(Fault::Usage, "--add_version false: ", output_root().string(), " holds ",
         there.back().second.filename().string(),
         " of an earlier run, and this one would begin at step 1 beside it. --resume_from_checkpoint auto goes on from "
         "the newest checkpoint; another --output_dir begins anew");
  if (const auto within = list_checkpoints(folder.resume_from_checkpoint); !within.empty())
    fail(Fault::Usage, "--resume_from_checkpoint ", folder.resume_from_checkpoint,
         " is the folder of a run; to go on, name one of its checkpoints: ", within.back().second.string());
  if (!folder.resume_from_checkpoint.empty())
    require(tuner.lora() == is_adapter_dir(folder.resume_from_checkpoint), Fault::Usage, "--resume_from_checkpoint ",
            folder.resume_from_checkpoint,
            tuner.lora() ? " holds no adapter; was it trained with --tuner_type full?"
                         : " holds an adapter; was it trained with --tuner_type lora?");
  require(!data.streaming || loop.max_steps > 0 || loop.max_epochs, Fault::Usage,
          "--streaming true needs --max_steps or --max_epochs: the length of the data is not known");
  require(!algorithm_info(algorithm).cached_rows.empty() ||
              (data.cached_dataset.empty() && data.cached_val_dataset.empty()),
          Fault::Usage, "--cached_dataset is not available for ", algorithm_info(algorithm).asked_as(algorithm),
          ", whose samples depend on its settings: give the rows themselves with --dataset");
  require(prompt.truncation_strategy != "split" || algorithm_info(algorithm).splits_rows, Fault::Usage,
          "--truncation_strategy split cuts plain text and belongs to apus pt; use delete, left or right");
  require(!loop.predict_with_generate || data.loss_scale.rfind("all", 0) != 0, Fault::Usage,
          "--predict_with_generate needs rows with questions and answers; with --loss_scale ", data.loss_scale,
          " there are no questions");
  require(optimisation.optimizer.value_or("default") != "lorap" || tuner.lorap_lr_ratio, Fault::Usage,
          "--optimizer lorap needs --lorap_lr_ratio, e.g. 16");
  require(tuner.init_weights != "lora-ga" || !tuner.lora() || algorithm_info(algorithm).command.empty(), Fault::Usage,
          "--init_weights lora-ga takes gradients of rows with answers, as apus sft and apus pt have them: train so "
          "first, or use --init_weights pissa");
  optimisation.check_optimizer(tuner.lora());
  benchmarks.check();
  push.check();
  check_update_in_backward(ranks);
  mesh.check_claims(loop, ranks);
  check_mesh(ranks);
  require_possible(combination(ranks));
  if (benchmarks.asks_benchmarks()) benchmarks.evaluation(model, prompt, true);
}

void TrainRun::fetch() {
  model.fetch();
  const fs::path file = fs::path(model.model) / "config.json";
  const Json config = parse_json(read_file(file, 16 << 20), file.string(), Fault::Model);
  const ModelFacts facts = model_facts(config);
  require_possible(combination(ranks(), &facts));
  if (facts.encoder) read_plain_texts();
  if (mesh.pipeline_model_parallel_size > 1) stage_layers(facts.layers, mesh.stages(), facts.seen_layers);
  if (own.asks_checkpoint()) {
    const Json taken = own.take_from(config, model.model);
    for (Json* told : {&all, &exact}) told->update(taken);
  }
  if (own.knows_reference() && !own.uses_reference()) reference.forget_unused();
  if (reference.ref_model) {
    reference.ref_model = model.fetched_model(*reference.ref_model, true, "--ref_model");
    require_same_tokenizer(model.model, *reference.ref_model, "--ref_model");
  }
  for (const OtherModel& other : own.other_models())
    if (other.folder) {
      *other.folder = model.fetched_model(*other.folder, true, other.flag);
      require_same_tokenizer(model.model, *other.folder, other.flag);
    }
}

// An encoder's rows are texts, which its tokenizer marks.
void TrainRun::read_plain_texts() {
  require(!template_said || !prompt.use_chat_template, Fault::Usage, "--use_chat_template true: ", model.model,
          " is an encoder, which reads plain texts; leave it out");
  prompt.encoder = true, prompt.use_chat_template = false;
  all["use_chat_template"] = false;
}

void TrainRun::check_update_in_backward(int64_t ranks) const {
  require(!loop.clip_in_backward || loop.update_in_backward, Fault::Usage,
          "--clip_in_backward belongs to --update_in_backward true; without it --max_grad_norm clips as it is");
  if (!loop.update_in_backward) return;
  require(!mesh.sharding().wide_sums, Fault::Usage,
          "--update_in_backward true adds up no gradients, and --grad_reduce_in_fp32 says how: give one of them");
  require(loop.max_grad_norm == 0 || loop.clip_in_backward, Fault::Usage,
          "--update_in_backward true updates a weight before the gradients of others are known, so they cannot be "
          "scaled to a common norm in one pass: give --max_grad_norm 0 with it, or --clip_in_backward second_pass "
          "(exact, twice the time) or last_norm (by the step before)");
  require(ranks == 1, Fault::Usage, "--update_in_backward true is for one process, not for ", ranks,
          ", whose gradients would have to be summed first: leave it out, or train in one");
  require(loop.accumulation(ranks) == 1, Fault::Usage,
          "--update_in_backward true keeps no gradients that micro-batches could add up in: give "
          "--gradient_accumulation_steps 1 with it (it is ",
          loop.accumulation(ranks), loop.gradient_accumulation_steps ? "" : " when it is not given",
          "); --per_device_train_batch_size and --packing true let an update see more rows");
}

Combination TrainRun::combination(int64_t ranks, const ModelFacts* facts) const {
  const AlgorithmInfo& info = algorithm_info(algorithm);
  const auto others = own.other_models();
  return {.algorithm = &info,
          .asked = info.asked_as(algorithm),
          .needs = own.needs(),
          .model = facts,
          .model_name = model.model,
          .tensor = mesh.tensor_model_parallel_size,
          .experts = mesh.expert_model_parallel_size,
          .stages = mesh.pipeline_model_parallel_size,
          .tokens = mesh.sequence_parallel_size,
          .residual = mesh.sequence_parallel,
          .zero = ranks > 1 ? mesh.sharding().stage : 0,
          .groups = mesh.sharding().group.has_value(),
          .tuner = tuner.tuner_type,
          .dora = tuner.use_dora,
          .quantised = quantise.any() || (tuner.lora() && facts && facts->quantised),
          .whole_matrices = optimisation.whole_matrices(),
          .averaging = averaging_flag(optimisation.chosen_optimizer()),
          .watches_logits = watching_flag(optimisation.chosen_optimizer()),
          .some_layers = optimisation.lisa_activated_layers > 0,
          .generates = loop.predict_with_generate,
          .broadcasts = mesh.broadcast_weights,
          .asks_reference = reference.precompute_ref_log_probs,
          .noise = optimisation.neftune_noise_alpha != 0,
          .benchmarks = benchmarks.asks_benchmarks(),
          .updates_early = loop.update_in_backward,
          .fp8 = loop.fp8_format.has_value(),
          .two_trained = std::any_of(others.begin(), others.end(), [](const OtherModel& m) { return m.trained; })};
}

// That as many processes run as share the model and the rows, and whole groups of answers in each of them.
void TrainRun::check_mesh(int64_t ranks) const {
  require(
      mesh.pipeline_model_parallel_size > 1 ||
          (!mesh.decoder_first_pipeline_num_layers && !mesh.decoder_last_pipeline_num_layers &&
           mesh.pipeline_model_parallel_layout.empty() && mesh.virtual_pipeline_model_parallel_size == 1),
      Fault::Usage,
      "--decoder_first_pipeline_num_layers, --decoder_last_pipeline_num_layers, --pipeline_model_parallel_layout and "
      "--virtual_pipeline_model_parallel_size belong to --pipeline_model_parallel_size");
  std::vector<std::string> sizes;
  for (const auto& [flag, size] : {std::pair{"--tensor_model_parallel_size", mesh.tensor_model_parallel_size},
                                   {"--expert_model_parallel_size", mesh.expert_model_parallel_size},
                                   {"--pipeline_model_parallel_size", mesh.pipeline_model_parallel_size},
                                   {"--sequence_parallel_size", mesh.sequence_parallel_size}})
    if (size > 1) sizes.push_back(str(flag, " ", size));
  require(ranks % mesh.least_ranks() == 0, Fault::Usage, join(sizes, " x "), " needs ", mesh.least_ranks(),
          " processes, or a multiple, and ", ranks == 1 ? "one runs" : str(ranks, " run"),
          ": start with NPROC_PER_NODE=", mesh.least_ranks());
  require(mesh.row_sharers() == 1 || own.group_sharers(loop, ranks / mesh.row_sharers()) <= 1, Fault::Usage,
          mesh.sequence_parallel_size > 1 ? "--sequence_parallel_size" : "--tensor_model_parallel_size", " with ",
          algorithm_info(algorithm).asked_as(algorithm),
          " needs whole groups in a process: raise --gradient_accumulation_steps or --steps_per_generation until a "
          "process has a multiple of --num_generations answers");
  if (tuner.tuner_type == "longlora")
    require(prompt.max_length && *prompt.max_length >= 8, Fault::Usage,
            "--tuner_type longlora lets tokens look at groups of a quarter of --max_length: give that");
}

namespace {
// The choosing option alone; the rest is read when the options are known.
struct AlgorithmChoice {
  std::string option, value;
  std::vector<std::string> known;
  bool ignore_others = true;
  void fields(OptionTable& v) {
    v(option.c_str(), value, "the algorithm").choices(known);
    v("", ignore_others, "").forgives_unknown();
  }
};
}  // namespace

std::string algorithm_asked_for(const std::vector<std::string>& arguments, const std::string& command,
                                const std::string& usual) {
  AlgorithmChoice choice{.option = chooser_of(command), .value = usual, .known = algorithms_of(command)};
  if (std::find(choice.known.begin(), choice.known.end(), usual) == choice.known.end())
    choice.known.insert(choice.known.begin(), usual);
  OptionTable::of(choice).parse(arguments);
  return choice.value;
}

std::unique_ptr<Command::Instance> training_command(const std::string& algorithm) {
  return command_instance<TrainRun>(std::make_shared<TrainRun>(algorithm),
                                    [](const TrainRun& options) { return run_heavy("train", &options); });
}

void register_training_commands() {
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all())
    if (info.command.empty())
      register_command({.info = {.name = name, .group = "Train", .summary = info.summary, .examples = info.examples},
                        .maker = [name = name](const std::vector<std::string>& arguments) {
                          const bool chosen = !algorithms_of(name).empty();
                          const std::string asked = chosen ? algorithm_asked_for(arguments, name, "causal_lm") : name;
                          return training_command(asked == "causal_lm" ? name : asked);
                        }});
}

}  // namespace apus
