// SPDX-License-Identifier: Apache-2.0
// Every command that trains: options -> model, data, optimizer, algorithm by its name -> the trainer, and what is said
// before and after.
#include "cli/train.h"

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "base/log.h"
#include "base/scratch_folder.h"
#include "base/signals.h"
#include "cli/pushed_checkpoints.h"
#include "device/agree.h"
#include "dist/mesh.h"
#include "dist/shared_folder.h"
#include "engine/answer/chat.h"
#include "models/seeing_decoder.h"
#include "models/spec/family.h"
#include "ops/steady_rows.h"
#include "run/benchmark_answers.h"
#include "run/checkpoint_place.h"
#include "run/inference.h"
#include "run/lora_ga.h"
#include "run/other_models.h"
#include "run/own_places.h"
#include "run/prediction.h"
#include "run/rank_agreement.h"
#include "run/reference_model.h"
#include "run/runner.h"
#include "run/shared_training.h"
#include "run/train_data.h"
#include "run/train_result.h"
#include "run/tuned_model.h"
#include "tensor/dtype.h"
#include "train/chosen_layers.h"
#include "train/param_groups.h"
#include "train/rank_allocator.h"
#include "train/rollout.h"
#include "train/shared_prefix.h"
#include "train/shown_rows.h"
#include "train/trainable.h"
#include "train/trainer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr double kFolderSeconds = 60;  // for so long a network file system may show an old state

// What may differ between machines is where things are.
void require_same_options(const TrainRun& o, World& world) {
  std::string text;
  for (const auto& [name, value] : o.all.items())
    if (name != "model" && name != "output_dir" && name != "logging_dir" && name != "resume_from_checkpoint" &&
        name != "adapters")
      text += str("--", name, " ", value.dump(), "\n");
  world.require_same(text, "the options");
  // Where it lies may differ, not which one it is.
  const fs::path from = o.folder.resume_from_checkpoint;
  world.require_same((from.has_filename() ? from : from.parent_path()).filename().string(),
                     "the checkpoints of --resume_from_checkpoint",
                     "Copy the one to go on from to all machines, or let --output_dir be a folder that all share",
                     // Another one may have come to be while the machines looked for the newest: they look again.
                     o.mesh.max_restarts > 0 ? Fault::Comm : Fault::Usage);
}

OptimizerSpec optimizer_spec(const TrainRun& o) {
  return {.kind = o.optimisation.chosen_optimizer(),
          .beta1 = o.optimisation.adam_beta1,
          .beta2 = o.optimisation.adam_beta2,
          .eps = o.optimisation.adam_epsilon,
          .rounding = o.optimisation.master_weights == "float32"      ? Rounding::Master
                      : o.optimisation.master_weights == "stochastic" ? Rounding::Stochastic
                                                                      : Rounding::Nearest,
          .arguments = o.optimisation.optimizer_arguments(),
          .target_modules = o.optimisation.optimizer_targets()};
}

Forward forward_of(const TrainRun& o, const Model& model) {
  const auto again = o.optimisation.recompute(model.shape().layers);
  Forward forward{
      .recomputed_layers = again.layers,
      .selective = {},
      .neftune_alpha = o.optimisation.neftune_noise_alpha,
      .logits = watching_flag(o.optimisation.chosen_optimizer()).empty() ? nullptr : std::make_shared<LargestLogit>(),
      .watch = {}};
  if (again.selective) forward.selective = {.attention = again.attention, .feed_forward = again.feed_forward};
  return forward;
}

RowFacts facts_of(const TrainData& data) {
  return {.longest = data.longest, .media = data.media ? data.media() : MediaFacts(), .first_row = {}};
}

TrainerOptions trainer_options(const TrainRun& o, const TrainData& data, const Model& model, const fs::path& run_dir) {
  TrainerOptions t{.loop = o.loop,
                   .seed = static_cast<uint64_t>(o.common.seed),
                   .forward = forward_of(o, model),
                   .wide_gradients = o.mesh.sharding().wide_sums,
                   .token_groups = o.tuner.tuner_type == "longlora" ? *o.prompt.max_length / 4 : 0,
                   .output_dir = run_dir,
                   .exact = data.exact,
                   .noted = o.noted};
  const TrainRun::Arithmetic arithmetic = o.arithmetic(facts_of(data));
  t.token_flops = arithmetic.of_token, t.peak_flops = arithmetic.peak;
  t.exact.update(o.exact);
  return t;
}

// Of rollouts: from the first token to one that ends a turn.
Sampling rollout_sampling(const TrainRun& o, const std::shared_ptr<const Tokenizer>& tokenizer) {
  Sampling sampling = resolve(o.answers, {});
  sampling.seed = static_cast<uint64_t>(o.common.seed);
  sampling.stop_ids = stop_ids(read_generation_config(o.model.model), Chat(o.model.model, tokenizer, o.prompt));
  return sampling;
}

std::function<Json()> prediction(const TrainRun& o, const TrainData& data, const Model& model, Rollout& rollout,
                                 World& world, Comm* sharers, const fs::path& run_dir) {
  if (!o.loop.predict_with_generate) return {};
  if (!data.eval) {
    log_warning("--predict_with_generate: there are no validation rows; give --val_dataset or --split_dataset_ratio");
    return {};
  }
  const auto tokenizer = Tokenizer::load(o.model.model);
  const auto answer =
      std::make_shared<Prediction>(Prediction::Parts{.rollout = rollout,
                                                     .rows = *data.eval,
                                                     .ranks = world.host(),
                                                     .sharers = sharers,
                                                     .tokenizer = tokenizer,
                                                     .sampling = rollout_sampling(o, tokenizer),
                                                     .file = world.first() ? run_dir / "predict.jsonl" : fs::path()});
  return [answer, &model] {
    const std::shared_ptr<void> alone = model.runner()->alone();
    return (*answer)();
  };
}

std::function<Json()> benchmarks_of(const TrainRun& o, const Model& model, Rollout& rollout, Mesh& mesh,
                                    const fs::path& run_dir) {
  if (!o.benchmarks.asks_benchmarks()) return {};
  const auto tokenizer = Tokenizer::load(o.model.model);
  EvalOptions asked = o.benchmarks.evaluation(o.model, o.prompt);
  Sampling sampling = resolve(asked.infer.answers, {});
  sampling.seed = static_cast<uint64_t>(o.common.seed);
  sampling.stop_ids = stop_ids(read_generation_config(o.model.model), Chat(o.model.model, tokenizer, o.prompt));
  const auto answers = std::make_shared<BenchmarkAnswers>(BenchmarkAnswers::Parts{.asked = std::move(asked),
                                                                                  .rollout = rollout,
                                                                                  .data_ranks = mesh.host(kDataAxes),
                                                                                  .tokenizer = tokenizer,
                                                                                  .sampling = std::move(sampling),
                                                                                  .folder = run_dir / "eval"});
  return [answers, &model] {
    const std::shared_ptr<void> alone = model.runner()->alone();
    return (*answers)();
  };
}

// What an evaluation does beside computing losses.
std::function<Json()> both(std::function<Json()> first, std::function<Json()> second) {
  if (!first || !second) return first ? first : second;
  return [first = std::move(first), second = std::move(second)] {
    Json line = first();
    line.update(second());
    return line;
  };
}

bool resumes(const TrainRun& o) {
  return !o.folder.resume_from_checkpoint.empty() && !(o.folder.resume_only_model && o.folder.ignore_data_skip);
}

void check_before_loading(const TrainRun& o, const OptimizerSpec& spec) {
  // What can be known without the model is checked without it.
  make_schedule({.type = o.optimisation.lr_scheduler_type, .base_lr = o.lr(), .total_steps = 1000, .warmup_steps = 0},
                o.optimisation.lr_scheduler_kwargs);
  make_optimizer(spec, {});
  if (resumes(o)) read_state(o.folder.resume_from_checkpoint, !o.folder.resume_only_model);
}

void write_arguments(const TrainRun& o, const fs::path& run_dir) {
  write_file_atomic(run_dir / "args.json", o.all.dump(2) + "\n");
  if (!o.config_file.empty())
    fs::copy_file(o.config_file, run_dir / fs::path(o.config_file).filename(), fs::copy_options::overwrite_existing);
}

std::unique_ptr<RunLog> open_log(const TrainRun& o, const fs::path& run_dir) {
  const auto asked = [&](const std::string& name) {
    return std::find(o.folder.report_to.begin(), o.folder.report_to.end(), name) != o.folder.report_to.end();
  };
  const bool events = !asked("none") && (asked("tensorboard") || asked("all"));
  std::vector<std::string> services;
  for (const std::string& name : tracker_names())
    if (asked(name)) services.push_back(name);
  auto log =
      std::make_unique<RunLog>(RunLog::Options{.dir = run_dir,
                                               .events_dir = !events                ? fs::path()
                                                             : o.folder.logging_dir ? fs::path(*o.folder.logging_dir)
                                                                                    : run_dir / "runs",
                                               .services = services,
                                               .tracked = {.dir = run_dir,
                                                           .project = fs::path(o.output_root()).filename(),
                                                           .name = fs::absolute(run_dir).filename(),
                                                           .settings = o.all}});
  log_info("The logging file will be saved in: ", log->file().string());
  return log;
}

std::function<Schedule(int64_t)> schedule_of(const TrainRun& o) {
  return [&o](int64_t steps) {
    return make_schedule(
        {.type = o.optimisation.lr_scheduler_type,
         .base_lr = o.lr(),
         .total_steps = steps,
         .warmup_steps = warmup_length(o.optimisation.warmup_steps, o.optimisation.warmup_ratio, steps)},
        o.optimisation.lr_scheduler_kwargs);
  };
}

// Of no pass that counts or changes each text's tokens, or that shares them out.
bool may_share_prefix(const TrainRun& o, const MeshLayout& rows) {
  return o.optimisation.neftune_noise_alpha == 0 && o.loop.router_aux_loss_coef == 0 &&
         o.loop.moe_expert_capacity_factor == 0 && rows.size({Axis::Pp, Axis::Cp}) == 1 &&
         o.tuner.tuner_type != "longlora" && !o.reference.ref_model &&
         can_share_prefixes(describe_model(read_model_config(o.model.model)));
}

RunSetting setting_of(const TrainRun& o, Mesh& mesh, const MeshLayout& rows, const fs::path& run_dir) {
  const AlgorithmInfo& info = algorithm_info(o.algorithm);
  const bool asks = info.rolls_out();
  const auto tokenizer = asks || info.names_tokens ? Tokenizer::load(o.model.model) : nullptr;
  return {.loop = o.loop,
          .rank = rows.rank(kDataAxes),
          .ranks = rows.size(kDataAxes),
          .tokenizer = tokenizer,
          .sampling = asks ? rollout_sampling(o, tokenizer) : Sampling(),
          .chat = asks ? std::make_shared<Chat>(o.model.model, tokenizer, o.prompt) : nullptr,
          .output_dir = run_dir,
          .seed = static_cast<uint64_t>(o.common.seed),
          .device = mesh.device(),
          .may_share_prefix = asks && may_share_prefix(o, rows)};
}

DataShare share_of(const TrainRun& o, const MeshLayout& rows) {
  return {.rank = rows.rank(kDataAxes),
          .ranks = rows.size(kDataAxes),
          .speaks = rows.rank({Axis::Pp, Axis::Cp, Axis::Tp}) == 0,
          .group_sharers = o.own.group_sharers(o.loop, rows.size(kDataAxes))};
}

TrainData rows_of(const TrainRun& o, Algorithm& algorithm, const fs::path& run_dir, const MeshLayout& rows) {
  if (!o.own.brings_rows()) return open_train_data(o, algorithm, o.model.model, run_dir, share_of(o, rows));
  TrainData data;
  data.train = algorithm.own_rows();
  data.exact = Json::object();
  return data;
}

// Of an algorithm that learns from further rows; else nothing.
TrainData shown_rows(const TrainRun& o, Algorithm& algorithm, const fs::path& run_dir, DataShare share) {
  auto* const learner = dynamic_cast<LearnsShownRows*>(&algorithm);
  if (!learner || learner->shown_rows().datasets.empty()) return {};
  const LearnsShownRows::Wanted wanted = learner->shown_rows();
  TrainData shown = open_shown_rows(o, wanted.datasets, wanted.rows, o.model.model, run_dir, share);
  learner->show(*shown.train);
  return shown;
}

void choose_towers_again(const TrainRun& o, Model& model) {
  if (auto* const seeing = dynamic_cast<SeeingDecoder*>(&model))
    seeing->run_towers_again(o.optimisation.towers_again());
}

// Of a policy that answers: its keys are turned alike while it answers and while it is trained, whatever length an
// answer comes to. By the longest text that there may be, as servers choose it.
void settle_lengths(const TrainRun& o, int64_t longest_row, Model& policy, Model* reference,
                    const OtherModels& others) {
  const int64_t border = policy.short_context();
  if (border == 0 || !algorithm_info(o.algorithm).rolls_out()) return;
  const int64_t prompt = o.prompt.max_length.value_or(longest_row), positions = policy.shape().max_positions;
  const int64_t answer = o.all.value("max_completion_length", int64_t{0});
  const int64_t longest = prompt > 0 ? std::min(positions, prompt + answer) : positions;
  log_info("texts of up to ", longest, " tokens: all are read with the rotary factors of ",
           longest > border ? "long" : "short", " ones, as ", border, " tokens are the border");
  policy.read_all_as(longest);
  if (reference) reference->read_all_as(longest);
  for (const auto& [role, models] : others.by_role())
    for (Model* const model : models) model->read_all_as(longest);
}

int train(const TrainRun& o, const OptimizerSpec& spec, World& world) {
  const Stopwatch began;
  const ops::SteadyRows rows_are_steady(o.own.needs().steady_rows);  // here, and in the engine that is made here
  if (world.size() > 1) require_same_options(o, world);
  const auto push =
      world.first() && o.push.push_to_hub ? std::make_unique<PushedCheckpoints>(o.push, o.model) : nullptr;
  Mesh mesh(world, mesh_sizes(o.mesh, world.size(), world.environment().local_world));
  // The same ranks as the rows see them: those along all axes but the data's read the same ones.
  Mesh rows(
      world,
      {.pp = mesh.size(Axis::Pp), .cp = static_cast<int>(o.mesh.sequence_parallel_size), .tp = mesh.size(Axis::Tp)});
  std::unique_ptr<FolderLock> lock;  // two runs in one folder would write over each other's checkpoints
  const fs::path run_dir = run_folder(o, world, lock);
  if (const std::string flag = flag_of_shares(o); world.size() > 1 && !flag.empty())
    require_shared_folder(run_dir, world.host(), std::min(kFolderSeconds, o.mesh.ddp_timeout / 2), flag);
  if (world.first()) write_arguments(o, run_dir);
  log_info("Global seed set to ", o.common.seed);

  // Tokenising begins before the weights are read: both take a while.
  const auto algorithm = make_algorithm(o.algorithm, o.own);
  algorithm->begin(setting_of(o, mesh, rows.layout(), run_dir));
  TrainData data = rows_of(o, *algorithm, run_dir, rows.layout());
  const TrainData shown = shown_rows(o, *algorithm, run_dir, share_of(o, rows.layout()));
  if (shown.train) data.exact.update(shown.exact);
  if (world.first()) {
    const std::string hint = o.faster(facts_of(data));
    if (!hint.empty()) log_info("faster: ", hint);
  }
  world.require_same(data.rows_text, "the rows",
                     "The files of --dataset are not the same everywhere: copy those of rank 0");
  TunedModel tuned = load_tuned_model(o, mesh, algorithm_info(o.algorithm).head);
  if (o.mesh.broadcast_weights) broadcast_weights(*tuned.model, world);
  require_same_weights(*tuned.model, world, o.model.model);
  if (tuned.adapter && o.tuner.init_weights == "lora-ga" && o.folder.resume_from_checkpoint.empty()) {
    Forward forward = forward_of(o, *tuned.model);
    forward.neftune_alpha = 0;
    begin_lora_by_gradients(o, *algorithm, *data.train, forward, tuned, world.host(), mesh.device());
  }
  const auto reference = load_reference(o, tuned, data, mesh);
  const OtherModels others(o, tuned, mesh, world);
  choose_towers_again(o, *tuned.model);
  for (const auto& [role, models] : others.by_role())
    for (Model* const model : models) choose_towers_again(o, *model);
  settle_lengths(o, data.longest, *tuned.model, reference->model.get(), others);
  std::vector<NamedParam> params = trainable_params(*tuned.model);
  for (const NamedParam& p : others.params()) params.push_back(p);
  const Head head = tuned.model->head_kind();
  const std::string kind = head == Head::None                 ? ""
                           : head == Head::Vocab              ? "ForCausalLM"
                           : o.model.task_type == "token_cls" ? "ForTokenClassification"
                                                              : "ForSequenceClassification";
  const std::string parameters = param_info((tuned.adapter ? "PeftModel" : "Model") + kind, count_params(*tuned.model));
  log_info("model_parameter_info: ", parameters);

  const bool in_parts = o.mesh.shares_parts();
  const bool owned = !o.optimisation.whole_matrices().empty() && o.mesh.sharding().stage > 0 && world.size() > 1;
  std::map<std::string, Model*> models = others.trained();
  models[""] = tuned.model.get();
  const SharedTraining shared = in_parts && mesh.size(Axis::DpShard) == 1
                                    ? share_parts(models, params, world, o.mesh)
                                    : share_training(*tuned.model, params, mesh, world, o.mesh, owned, others.shared());
  const bool residual = o.mesh.sequence_parallel;
  if (const int groups = share_tokens(*tuned.model, rows, residual); rows.size(Axis::Cp) > 1)
    log_info(rows.size(Axis::Cp), " ranks share out the tokens of each row",
             groups > 1 ? str("; keys and values go round among ", groups,
                              groups < rows.size(Axis::Cp) ? " groups of them, which share out heads" : " of them")
                        : ", and heads");
  if (reference->model) share_tokens(*reference->model, rows, residual);
  if (residual)
    for (const auto& [role, model] : others.trained()) share_tokens(*model, rows, residual);
  if (mesh.size(Axis::Tp) > 1)
    log_info(mesh.size(Axis::Tp), " ranks share out the matrices of the model",
             residual ? ", and the tokens between them" : "");
  if (mesh.size(Axis::Ep) > 1) log_info(mesh.size(Axis::Ep), " ranks share out the experts of each layer");
  const Stage stage = run_as_stage(*tuned.model, mesh, world, tuned.dtype, o.mesh);
  if (stage.pipeline && reference->model) {
    const ModelShape &own = tuned.model->shape(), &other = reference->model->shape();
    require(own.layers == other.layers && own.hidden == other.hidden, Fault::Usage,
            "--ref_model has other layers than the model that is trained, and the stages of a pipeline run both: leave "
            "out --pipeline_model_parallel_size");
    stage.pipeline->run(*reference->model);
  }
  std::vector<std::pair<std::string, double>> rates = others.learning_rates();
  for (auto& rate : tuned.learning_rates(o)) rates.push_back(std::move(rate));
  const auto optimizer =
      make_optimizer(spec, make_groups(shared.updated, {.lr = o.lr(),
                                                        .weight_decay = o.optimisation.weight_decay,
                                                        .lorap_lr_ratio = o.tuner.lorap_lr_ratio.value_or(0),
                                                        .lr_by_prefix = std::move(rates)}));
  const auto log = world.first() ? open_log(o, run_dir) : nullptr;
  Rollout rollout(
      *tuned.model, at::TensorOptions().dtype(tuned.dtype).device(mesh.device()),
      {.max_sequences = algorithm_info(o.algorithm).rolls_out() ? o.all.value("vllm_max_num_seqs", int64_t{256}) : 16},
      [&](const fs::path& dir) {
        const auto save = [&] { tuned.save(dir, o); };
        shared.model ? shared.model->as_slices(save) : save();
      },
      line_of_copy(mesh, world));
  Comm* const sharers = rows.size({Axis::Cp, Axis::Tp}) > 1 ? &rows.host({Axis::Cp, Axis::Tp}) : nullptr;
  const StopFlag stop;
  std::optional<RankAllocator> ranks;
  if (tuned.adapter && tuned.adapter->config.kind == "adalora")
    ranks.emplace(*tuned.model, tuned.adapter->config.adalora);
  std::optional<ChosenLayers> layers;
  if (o.optimisation.lisa_activated_layers > 0)
    layers.emplace(*tuned.model, *optimizer,
                   ChosenLayers::Spec{.layers = tuned.model->shape().layers,
                                      .count = o.optimisation.lisa_activated_layers,
                                      .interval = o.optimisation.lisa_step_interval,
                                      .seed = static_cast<uint64_t>(o.common.seed)});
  Trainer trainer({.algorithm = *algorithm,
                   .actors = {.policy = *tuned.model,
                              .reference = reference->compare,
                              .rollout = &rollout,
                              .others = others.by_role(),
                              .sharers = sharers},
                   .optimizer = *optimizer,
                   .schedule = schedule_of(o),
                   .base_lr = o.lr(),
                   .train = *data.train,
                   .eval = data.eval.get(),
                   .places = own_places(models, shared.updated),
                   .in_parts = in_parts || owned,
                   .data_ranks = world.host(),
                   .row_sharers = o.mesh.row_sharers(),
                   .reader = rows.rank(kDataAxes),
                   .group_sharers = o.own.group_sharers(o.loop, rows.size(kDataAxes)),
                   .gradients = shared.sync(),
                   .pipeline = stage.pipeline.get(),
                   .ranks = ranks ? &*ranks : nullptr,
                   .layers = layers ? &*layers : nullptr,
                   .log = log.get(),
                   .device = mesh.device(),
                   .save_model = [&](const fs::path& dir) { tuned.save(dir, o), others.save(dir); },
                   .saved = push ? [&](const fs::path& checkpoint) { push->saved(checkpoint); }
                                 : std::function<void(const fs::path&)>(),
                   .evaluate_more = both(prediction(o, data, *tuned.model, rollout, world, sharers, run_dir),
                                         benchmarks_of(o, *tuned.model, rollout, mesh, run_dir)),
                   .room = o.loop.async_save ? room_for_checkpoints : std::function<int64_t()>(),
                   .store = world.store(),
                   .stop = &stop,
                   .began = began,
                   .begins_step = [&](int64_t step) { world.at(str("step ", step)); },
                   .alone = own_passes(o, *tuned.model, reference->model.get(), others)},
                  trainer_options(o, data, *tuned.model, run_dir));
  if (ranks) tuned.adapter->config.adalora.total_steps = trainer.max_steps();
  if (resumes(o)) {
    const RunState state = read_state(o.folder.resume_from_checkpoint, !o.folder.resume_only_model);
    require_same_state(state, world, o.folder.resume_from_checkpoint);
    trainer.resume(state, {.optimizer = !o.folder.resume_only_model, .data = !o.folder.ignore_data_skip});
    log_info("resumed from ", o.folder.resume_from_checkpoint);
  }
  const TrainResult result = trainer.run();
  if (log) log->finish(result_json(result, data, parameters, o.loop.best_metric())), say_result(o, result, *log);
  if (push && result.last_checkpoint && !result.interrupted) push->finish(*result.last_checkpoint);
  if (const std::string media = data.media_line ? data.media_line() : ""; log && !media.empty()) log_info(media);
  if (!result.interrupted) return 0;
  if (stop.raised()) throw Interrupted(stop.signal());
  return 128 + SIGTERM;  // its time was over, or another rank was asked: the trainer has said so
}

int rehearse(const TrainRehearsal& asked) {
  const TrainRun& o = asked.options;
  check_before_loading(o, optimizer_spec(o));
  const ScratchFolder scratch("apus-dry-run");
  if (o.own.brings_rows()) {
    asked.text = "brought by the algorithm, which reads them when it begins";
    return 0;
  }
  const auto algorithm = make_algorithm(o.algorithm, o.own);
  const TrainData data = open_train_data(o, *algorithm, o.model.model, scratch.path()),
                  shown = shown_rows(o, *algorithm, scratch.path(), {});
  asked.text = data.train_text.empty() ? "read and encoded when they are needed" : data.train_text;
  asked.rows = {.longest = data.longest, .good = data.rows, .rejected = data.rejected};
  if (algorithm_info(o.algorithm).asks_rows) {
    data.train->start(0);
    if (const auto samples = data.train->next(); samples && !samples->empty())
      asked.rows.first_row = samples->front().row;
  }
  if (data.media) asked.rows.media = data.media();
  return 0;
}

int run(const TrainRun& o) {
  const OptimizerSpec spec = optimizer_spec(o);
  check_before_loading(o, spec);
  World world({.device = o.model.device, .timeout_s = o.mesh.ddp_timeout});
  return world.guard([&] { return train(o, spec, world); });
}

const RegisterRunner<TrainRun> train_command("train", run);
const RegisterRunner<TrainRehearsal> train_rehearsal("train rehearsal", rehearse);

}  // namespace
}  // namespace apus
