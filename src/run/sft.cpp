// SPDX-License-Identifier: Apache-2.0
// apus sft and apus pt: options -> model, data, optimizer -> the trainer, and what is said before and after.
#include "cli/sft.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "algos/sft.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "device/agree.h"
#include "dist/mesh.h"
#include "parallel/data_parallel.h"
#include "run/inference.h"
#include "run/prediction.h"
#include "run/runner.h"
#include "run/train_data.h"
#include "run/tuned_model.h"
#include "tensor/dtype.h"
#include "train/param_groups.h"
#include "train/trainable.h"
#include "train/trainer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

fs::path make_run_folder(const SftOptions& o) {
  const fs::path root = o.output_root();
  if (o.add_version) return make_version_dir(root);
  make_writable_dir(root);
  remove_leftovers(root);
  return root;
}

// The first rank makes it and writes in it.
fs::path run_folder(const SftOptions& o, World& world) {
  return gather_text(world.first() ? make_run_folder(o).string() : "", world.host())[0];
}

// What may differ between machines is where things are.
void require_same_options(const SftOptions& o, World& world) {
  std::string text;
  for (const auto& [name, value] : o.all.items())
    if (name != "model" && name != "output_dir" && name != "logging_dir" && name != "resume_from_checkpoint" &&
        name != "adapters")
      text += str("--", name, " ", value.dump(), "\n");
  world.require_same(text, "the options");
}

When when(const std::string& strategy) {
  return strategy == "steps" ? When::Steps : strategy == "epoch" ? When::Epoch : When::Never;
}

int64_t interval(double steps, int64_t total) {
  return steps >= 1 ? static_cast<int64_t>(steps)
                    : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps * static_cast<double>(total))));
}

std::string metric_name(const SftOptions& o) {
  const char* const otherwise = !o.predict_with_generate ? "loss" : o.eval_metric == "acc" ? "acc" : "rouge-l";
  const std::string name = o.metric_for_best_model.value_or(otherwise);
  return name.rfind("eval_", 0) == 0 ? name : "eval_" + name;
}

OptimizerSpec optimizer_spec(const SftOptions& o) {
  return {.kind = o.optim,
          .muon = o.optimizer.value_or("") == "muon",
          .beta1 = o.adam_beta1,
          .beta2 = o.adam_beta2,
          .eps = o.adam_epsilon,
          .rounding = o.master_weights == "float32"      ? Rounding::Master
                      : o.master_weights == "stochastic" ? Rounding::Stochastic
                                                         : Rounding::Nearest,
          .arguments = parse_optim_args(o.optim_args.value_or(""))};
}

// The length of a stream that is to be read --max_epochs times; the schedule of the learning rate needs it.
int64_t counted_steps(const SftOptions& o, BatchSource& train, int64_t accumulation, Comm& ranks) {
  if (o.max_steps > 0 || train.size() >= 0) return o.max_steps;
  log_info("without --max_steps the batches of the stream are counted first");
  int64_t batches = 0;
  for (train.start(0); train.next();) ++batches;
  const double most = largest_of(ranks, static_cast<double>(batches));
  require(most > 0, Fault::Data, "the training dataset gives no batch: every row was rejected, or there was none");
  return static_cast<int64_t>(
      std::ceil(o.max_epochs.value_or(1) * std::ceil(most / static_cast<double>(accumulation))));
}

// The share-of-the-run forms of --save_steps need the number of steps, which needs the data.
int64_t planned_steps(const SftOptions& o, const BatchSource& train, int64_t max_steps, int64_t accumulation,
                      Comm& ranks) {
  const double most = largest_of(ranks, static_cast<double>(train.size()));
  if (max_steps > 0 || most <= 0) return std::max<int64_t>(1, max_steps);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(o.max_epochs.value_or(o.num_train_epochs) *
                                                             std::ceil(most / static_cast<double>(accumulation)))));
}

TrainerOptions trainer_options(const SftOptions& o, const TrainData& data, const Model& model, const fs::path& run_dir,
                               Comm& ranks) {
  TrainerOptions t;
  t.batch_size = o.per_device_train_batch_size, t.gradient_accumulation_steps = o.accumulation(ranks.size());
  t.max_steps = counted_steps(o, *data.train, t.gradient_accumulation_steps, ranks);
  t.num_train_epochs = o.max_epochs.value_or(o.num_train_epochs), t.max_epochs = o.max_epochs.value_or(0);
  t.max_grad_norm = o.max_grad_norm, t.update_in_backward = o.update_in_backward;
  t.logging_steps = o.logging_steps, t.logging_first_step = o.logging_first_step;
  const int64_t steps = planned_steps(o, *data.train, t.max_steps, t.gradient_accumulation_steps, ranks);
  t.save = when(o.save_strategy), t.save_steps = interval(o.save_steps, steps);
  t.eval = data.eval ? when(o.eval_strategy.value_or(o.save_strategy)) : When::Never;
  t.eval_steps = interval(o.eval_steps.value_or(o.save_steps), steps), t.eval_on_start = o.eval_on_start;
  t.save_total_limit = o.save_total_limit.value_or(0), t.save_only_model = o.save_only_model,
  t.create_checkpoint_symlink = o.create_checkpoint_symlink;
  t.metric_for_best_model = metric_name(o);
  t.greater_is_better = o.greater_is_better.value_or(t.metric_for_best_model.find("loss") == std::string::npos);
  const bool early = std::find(o.callbacks.begin(), o.callbacks.end(), "early_stop") != o.callbacks.end();
  t.early_stop_interval = o.early_stop_interval.value_or(early ? 3 : 0);
  t.max_bad_steps = o.max_bad_steps, t.router_aux_loss_coef = o.router_aux_loss_coef,
  t.seed = static_cast<uint64_t>(o.seed);
  const auto again = o.recompute(model.shape().layers);
  t.forward = {.recomputed_layers = again.layers,
               .selective = std::nullopt,
               .neftune_alpha = o.neftune_noise_alpha,
               .watch = {}};
  if (again.selective) t.forward.selective = {.attention = again.attention, .feed_forward = again.feed_forward};
  t.output_dir = run_dir;
  t.exact = data.exact;
  t.exact["tuner_type"] = o.tuner_type, t.exact["per_device_train_batch_size"] = o.per_device_train_batch_size;
  if (o.lora())
    for (const char* name : {"lora_rank", "lora_alpha", "use_rslora", "init_weights", "use_dora", "target_modules",
                             "target_regex", "modules_to_save"})
      t.exact[name] = o.all.at(name);
  for (const char* name : {"lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "weight_decay",
                           "adam_beta1", "adam_beta2", "adam_epsilon", "optim_args", "lorap_lr_ratio", "lora_dropout",
                           "neftune_noise_alpha", "label_smoothing_factor", "enable_dft_loss", "router_aux_loss_coef"})
    t.noted[name] = o.all.at(name);
  return t;
}

Json summary(const TrainResult& r, const TrainData& data, const std::string& parameters, const std::string& best_name) {
  const auto path = [](const std::optional<fs::path>& p) { return p ? Json(p->string()) : Json(); };
  Json out = {{"model_parameter_info", parameters}, {"train_dataset", data.train_text}};
  if (data.eval) out["val_dataset"] = data.eval_text;
  out["last_model_checkpoint"] = path(r.last_checkpoint), out["best_model_checkpoint"] = path(r.best_checkpoint);
  out["best_metric"] = r.best_metric ? Json(*r.best_metric) : Json();
  out["metric_for_best_model"] = best_name;
  out["global_step"] = r.step, out["log_history"] = r.log_history, out["skipped_updates"] = r.bad_steps;
  out["memory"] = r.memory;
  return out;
}

void say_result(const TrainResult& r, const RunLog& log) {
  const auto shown = [](const std::optional<fs::path>& p) { return p ? p->string() : std::string("None"); };
  log_info("last_model_checkpoint: ", shown(r.last_checkpoint));
  log_info("best_model_checkpoint: ", shown(r.best_checkpoint));
  log_info("images_dir: ", log.images_dir().string());
}

std::function<Json()> prediction(const SftOptions& o, const TrainData& data, const TunedModel& tuned, Mesh& mesh,
                                 const fs::path& run_dir) {
  if (!o.predict_with_generate) return {};
  if (!data.eval) {
    log_warning("--predict_with_generate: there are no validation rows; give --val_dataset or --split_dataset_ratio");
    return {};
  }
  const auto tokenizer = Tokenizer::load(o.model);
  Sampling sampling = resolve(o, {});
  sampling.seed = static_cast<uint64_t>(o.seed);
  sampling.stop_ids = stop_ids(read_generation_config(o.model), Chat(o.model, tokenizer, o));
  const auto answer = std::make_shared<Prediction>(
      Prediction::Parts{.model = *tuned.model,
                        .options = at::TensorOptions().dtype(tuned.dtype).device(mesh.device()),
                        .rows = *data.eval,
                        .data_ranks = mesh.host(kDataAxes),
                        .tokenizer = tokenizer,
                        .sampling = sampling,
                        .file = mesh.rank(kDataAxes) == 0 ? run_dir / "predict.jsonl" : fs::path()});
  return [answer] { return (*answer)(); };
}

void check_before_loading(const SftOptions& o, const OptimizerSpec& spec) {
  // What can be known without the model is checked without it.
  make_schedule({.type = o.lr_scheduler_type, .base_lr = o.lr(), .total_steps = 1000, .warmup_steps = 0},
                o.lr_scheduler_kwargs);
  make_optimizer(spec, {});
  if (!o.resume_from_checkpoint.empty() && !(o.resume_only_model && o.ignore_data_skip))
    read_state(o.resume_from_checkpoint, !o.resume_only_model);
}

void write_arguments(const SftOptions& o, const fs::path& run_dir) {
  write_file_atomic(run_dir / "args.json", o.all.dump(2) + "\n");
  if (!o.config_file.empty())
    fs::copy_file(o.config_file, run_dir / fs::path(o.config_file).filename(), fs::copy_options::overwrite_existing);
}

std::unique_ptr<RunLog> open_log(const SftOptions& o, const fs::path& run_dir) {
  const bool events = std::find(o.report_to.begin(), o.report_to.end(), "none") == o.report_to.end();
  auto log = std::make_unique<RunLog>(RunLog::Options{.dir = run_dir,
                                                      .events_dir = !events         ? fs::path()
                                                                    : o.logging_dir ? fs::path(*o.logging_dir)
                                                                                    : run_dir / "runs"});
  log_info("The logging file will be saved in: ", log->file().string());
  return log;
}

std::unique_ptr<GradientSum> sum_gradients(const std::vector<NamedParam>& params, Mesh& mesh, const SftOptions& o) {
  if (mesh.size(kDataAxes) == 1) return nullptr;
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const NamedParam& p : params) named.emplace_back(p.name, p.tensor);
  return std::make_unique<GradientSum>(std::move(named), mesh.comm(kDataAxes),
                                       GradientSum::Spec{.bucket_bytes = o.ddp_bucket_cap_mb << 20});
}

int train(const SftOptions& o, const OptimizerSpec& spec, World& world) {
  if (world.size() > 1) require_same_options(o, world);
  Mesh mesh(world);
  const fs::path run_dir = run_folder(o, world);
  if (world.first()) write_arguments(o, run_dir);
  log_info("Global seed set to ", o.seed);

  // Tokenising begins before the weights are read: both take a while.
  TrainData data = open_train_data(o, o.model, run_dir, {.rank = mesh.rank(kDataAxes), .ranks = mesh.size(kDataAxes)});
  TunedModel tuned = load_tuned_model(o, mesh);
  const auto params = trainable_params(*tuned.model);
  const std::string parameters =
      param_info(tuned.adapter ? "PeftModelForCausalLM" : "ModelForCausalLM", count_params(*tuned.model));
  log_info("model_parameter_info: ", parameters);

  const auto optimizer = make_optimizer(spec, make_groups(params, {.lr = o.lr(),
                                                                   .weight_decay = o.weight_decay,
                                                                   .lorap_lr_ratio = o.lorap_lr_ratio.value_or(0),
                                                                   .lr_by_prefix = {}}));
  const auto log = world.first() ? open_log(o, run_dir) : nullptr;
  const auto gradients = sum_gradients(params, mesh, o);
  Sft algorithm({.label_smoothing = o.label_smoothing_factor,
                 .dft = o.enable_dft_loss,
                 .channel_loss = o.enable_channel_loss,
                 .sequence_accuracy = o.acc_strategy == "seq"});
  const StopFlag stop;
  const auto schedule = [&](int64_t steps) {
    return make_schedule({.type = o.lr_scheduler_type,
                          .base_lr = o.lr(),
                          .total_steps = steps,
                          .warmup_steps = warmup_length(o.warmup_steps, o.warmup_ratio, steps)},
                         o.lr_scheduler_kwargs);
  };
  Trainer trainer({.algorithm = algorithm,
                   .actors = {.policy = *tuned.model},
                   .optimizer = *optimizer,
                   .schedule = schedule,
                   .base_lr = o.lr(),
                   .train = *data.train,
                   .eval = data.eval.get(),
                   .data_ranks = mesh.host(kDataAxes),
                   .gradients = gradients.get(),
                   .log = log.get(),
                   .device = mesh.device(),
                   .save_model = [&](const fs::path& dir) { tuned.save(dir, o); },
                   .evaluate_more = prediction(o, data, tuned, mesh, run_dir),
                   .stop = &stop},
                  trainer_options(o, data, *tuned.model, run_dir, mesh.host(kDataAxes)));
  if (!o.resume_from_checkpoint.empty() && !(o.resume_only_model && o.ignore_data_skip)) {
    trainer.resume(read_state(o.resume_from_checkpoint, !o.resume_only_model),
                   {.optimizer = !o.resume_only_model, .data = !o.ignore_data_skip});
    log_info("resumed from ", o.resume_from_checkpoint);
  }
  const TrainResult result = trainer.run();
  if (log) log->finish(summary(result, data, parameters, metric_name(o))), say_result(result, *log);
  if (result.interrupted) throw Interrupted(stop.raised() ? stop.signal() : SIGTERM);  // another rank was asked
  return 0;
}

int rehearse_sft(const SftRehearsal& asked) {
  const SftOptions& o = asked.options;
  check_before_loading(o, optimizer_spec(o));
  struct Scratch {
    const fs::path dir = fs::temp_directory_path() / str("apus-dry-run-", ::getpid());
    Scratch() { make_writable_dir(dir); }
    ~Scratch() {
      std::error_code code;
      fs::remove_all(dir, code);
    }
  } const scratch;
  const TrainData data = open_train_data(o, o.model, scratch.dir);
  asked.text = data.train_text.empty() ? "read and encoded when they are needed" : data.train_text;
  asked.longest = data.longest;
  return 0;
}

int run_sft(const SftOptions& o) {
  const OptimizerSpec spec = optimizer_spec(o);
  check_before_loading(o, spec);
  World world({.device = o.device, .timeout_s = o.ddp_timeout});
  return world.guard([&] { return train(o, spec, world); });
}

const RegisterRunner<SftOptions> runner("sft", run_sft);
const RegisterRunner<SftRehearsal> rehearsal("sft rehearsal", rehearse_sft);

}  // namespace
}  // namespace apus
