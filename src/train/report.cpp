// SPDX-License-Identifier: Apache-2.0
// The trainer's log lines, evaluation and checkpoints.
#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/table.h"
#include "device/agree.h"
#include "device/device.h"
#include "nn/training_step.h"
#include "parallel/gradient_sync.h"
#include "parallel/pipeline.h"
#include "train/idle_pass.h"
#include "train/rank_allocator.h"
#include "train/rollout.h"
#include "train/straggler.h"
#include "train/trainer.h"

namespace apus {
namespace fs = std::filesystem;

// The first steps load and choose what they need: they are left out, where the run is long enough.
void Trainer::trace(bool ends) {
  constexpr int64_t kLeftOut = 2, kSteps = 3;
  constexpr size_t kShown = 15;
  if (!o_.loop.profile || !p_.log) return;
  const int64_t done = step_ - first_step_, from = max_steps_ - first_step_ >= kLeftOut + kSteps ? kLeftOut : 0;
  if (!trace_) {
    if (ends || done != from) return;
    trace_ = std::make_unique<Trace>(p_.device);
    trace_watch_.restart();
    return;
  }
  if (!ends && done < from + kSteps) return;
  const double seconds = trace_watch_.seconds();
  const fs::path folder = o_.output_dir / "profile", file = folder / str("step_", first_step_ + from + 1, ".json");
  fs::create_directories(folder);
  const std::vector<TracedOperator> operators = std::exchange(trace_, nullptr)->finish(file);
  double all = 0;
  for (const TracedOperator& o : operators) all += o.milliseconds;
  std::vector<std::vector<std::string>> rows{{"ms a step", "share", "calls a step", "operator"}};
  const double steps = static_cast<double>(done - from);
  for (const TracedOperator& o : operators) {
    if (rows.size() > kShown) break;
    rows.push_back({str(rounded(o.milliseconds / steps, 3)), str(rounded(100 * o.milliseconds / all, 1), " %"),
                    str(rounded(static_cast<double>(o.calls) / steps, 1)), o.name.substr(0, 90)});
  }
  log_info("steps ", first_step_ + from + 1, " to ", step_, " took ", rounded(seconds * 1e3 / steps, 1),
           " ms each (tracing makes them slower), of which their operators ", rounded(all / steps, 1),
           " ms; all of it: ", file.string(), " (ui.perfetto.dev)\n",
           table_text(rows, [](const std::string&, const std::string& cell, bool) { return cell; }));
}

// Adds what every line ends with, and hands it to the log and the history.
void Trainer::report(Json values) {
  if (!p_.log) return;
  const double seconds = watch_.seconds();
  const auto done = static_cast<double>(std::max<int64_t>(1, step_ - first_step_));
  values["epoch"] = rounded(epoch_now());
  Json kept = values;
  kept["step"] = step_;
  result_.log_history.push_back(kept);
  values["global_step/max_steps"] = str(step_, "/", max_steps_);
  values["elapsed_time"] = spoken_time(seconds);
  values["remaining_time"] = spoken_time(seconds / done * static_cast<double>(max_steps_ - step_));
  result_.memory =
      rounded(static_cast<double>(kind_of(p_.device).memory(std::max<int>(0, p_.device.index())).peak) / (1 << 30), 2);
  values["memory(GiB)"] = result_.memory;
  values["train_speed(s/it)"] = rounded(seconds / done, 6);
  p_.log->log(step_, values);
}

// Who the others waited for since the last line, where it is worth a word.
Json Trainer::straggler() {
  std::vector<double> seconds;
  for (const std::string& each : gather_text(str(std::exchange(own_seconds_, 0)), p_.data_ranks))
    seconds.push_back(std::atof(each.c_str()));
  const auto found = straggler_of(seconds);
  return found ? Json{{"slowest_rank", found->rank}, {"slowest_takes", rounded(found->times, 2)}} : Json::object();
}

void Trainer::log_training() {
  const Json ratios = metrics_.take(p_.data_ranks);
  Json line = Json::object();
  line["loss"] = logged_steps_ ? loss_since_log_ / static_cast<double>(logged_steps_) : NAN;
  line["grad_norm"] = last_norm_;
  line["learning_rate"] = last_lr_;
  line.update(ratios);
  if (p_.data_ranks.size() > 1) line.update(straggler());
  progress_->note(str("loss ", rounded(line["loss"].get<double>(), 4)));
  loss_since_log_ = 0, logged_steps_ = 0;
  report(line);
  for (const std::string& sign : signs_.see(line))
    if (p_.log) log_warning("step ", step_, ": ", sign);
}

std::shared_ptr<void> Trainer::meant_weights() {
  if (p_.optimizer.shows_meant()) return nullptr;
  p_.optimizer.show_meant();
  if (!p_.optimizer.shows_meant()) return nullptr;
  const auto changed = [this] {
    if (p_.actors.rollout) p_.actors.rollout->weights_changed();
  };
  changed();
  return {&p_.optimizer, [changed](Optimizer* optimizer) { optimizer->show_trained(), changed(); }};
}

void Trainer::evaluate() {
  at::NoGradGuard no_grad;
  const Stopwatch watch;
  const std::shared_ptr<void> meant = meant_weights();
  p_.actors.step = step_;  // as the next collection finds it
  p_.algorithm.settle(p_.actors);
  const std::shared_ptr<void> alone = p_.alone ? p_.alone() : nullptr;
  double loss = 0, count = 0, sequences = 0, batches = 0;
  Metrics metrics;
  const bool in_step = p_.gradients && p_.gradients->passes_in_step();
  Samples spare;  // for rounds in which this rank has no rows while others have
  std::optional<Samples> samples;
  if (p_.eval) p_.eval->start(0), samples = p_.eval->next();
  for (; p_.eval; samples = p_.eval->next(), ++batches) {
    if (!(in_step ? summed(samples ? 1 : 0) > 0 : samples.has_value())) break;
    const bool idle = !samples;
    if (idle && spare.empty()) spare = p_.eval->any().value_or(idle_samples());
    if (!idle && in_step) spare = *samples;
    Update all;
    for (Update& update : p_.algorithm.collect(p_.actors, {idle ? spare : std::move(*samples)}))
      for (Batch& batch : update) all.push_back(batch.to(p_.device));
    const size_t passes =
        in_step ? static_cast<size_t>(largest_of(p_.data_ranks, static_cast<double>(all.size()))) : all.size();
    for (size_t i = 0; i < passes; ++i) {
      if (idle || i >= all.size()) {
        keep_step(all.empty() ? nullptr : &all[std::min(i, all.size() - 1)]);
        continue;
      }
      Batch& here = all[i];
      if (const auto fp8 = o_.loop.fp8()) {  // judged as it is trained
        TrainingStep own;
        own.fp8 = fp8;
        set_training(here.step, std::move(own));
      }
      const Loss part = loss_of(here, Forward{});
      loss += part.sum.item<double>(), count += p_.algorithm.count(here),
          sequences += static_cast<double>(here.step.length_q.size());
      metrics.add(part.metrics);
      if (in_step) spare_ = here;
    }
  }
  if (p_.pipeline) p_.pipeline->settle();
  loss = summed(loss), count = summed(count);
  sequences = summed(sequences) / static_cast<double>(p_.row_sharers);
  Json line = Json::object();
  if (p_.eval) line["eval_loss"] = count > 0 ? loss / count : NAN;
  line.update(metrics.take(p_.data_ranks, "eval_"));
  const Json whole = p_.algorithm.evaluated(p_.data_ranks);
  for (const auto& [name, value] : whole.items()) line["eval_" + name] = value;
  if (p_.evaluate_more) line.update(p_.evaluate_more());
  const double seconds = watch.seconds();
  line["eval_runtime"] = rounded(seconds, 4);
  if (p_.eval)
    line["eval_samples_per_second"] = rounded(sequences / seconds, 3),
    line["eval_steps_per_second"] = rounded(batches / seconds, 3);
  last_evaluated_ = step_;
  report(line);
  // Where only questions were asked there is no loss to judge by.
  if (p_.eval || o_.loop.metric_for_best_model) judge(line);
}

void Trainer::judge(const Json& line) {
  const std::string name = o_.loop.best_metric();
  require(line.contains(name), Fault::Usage, "--metric_for_best_model ", name,
          " is not among the values of the evaluation: ", line.dump());
  const double value = line[name].get<double>();
  const bool better = std::isfinite(value) &&
                      (!result_.best_metric ||
                       (o_.loop.greater_metric_wins() ? value > *result_.best_metric : value < *result_.best_metric));
  evaluations_without_gain_ = better ? 0 : evaluations_without_gain_ + 1;
  if (!better) return;
  result_.best_metric = value, result_.best_step = step_;
  result_.best_checkpoint = o_.output_dir / str("checkpoint-", step_);  // dropped at the end if it was never saved
}

RunState Trainer::state() const {
  RunState s;
  const bool within = collection_.open() && !p_.algorithm.collects_by_policy();
  s.step = step_, s.epoch = epoch_, s.exact = o_.exact, s.noted = o_.noted;
  s.data = within ? collection_.position : p_.train.position();
  s.exact["gradient_accumulation_steps"] = accumulation_;
  s.exact["seed"] = o_.seed;
  s.exact["data_parallel_ranks"] = readers();
  s.noted["learning_rate"] = p_.base_lr, s.noted["max_steps"] = max_steps_,
  s.noted["max_grad_norm"] = o_.loop.max_grad_norm;
  s.optimizer = p_.optimizer.kind();
  s.trainer = trainer_json();
  s.progress = {{"optimizer_steps", p_.optimizer.steps()},
                {"optimizer_steps_of", p_.optimizer.steps_of()},
                {"evaluations_without_gain", evaluations_without_gain_},
                {"micro_batches_in_epoch", within ? collection_.micro_batches : micro_in_epoch_},
                {"rows", within ? collection_.rows : result_.rows}};
  if (Json own = p_.algorithm.state(); !own.empty()) s.progress["algorithm"] = std::move(own);
  if (within) s.progress["updates_of_collection"] = collection_.done;
  return s;
}

Json Trainer::trainer_json() const {
  const auto path = [](const std::optional<fs::path>& p) { return p ? Json(p->string()) : Json(); };
  return {{"best_global_step", result_.best_step ? Json(*result_.best_step) : Json()},
          {"best_metric", result_.best_metric ? Json(*result_.best_metric) : Json()},
          {"best_model_checkpoint", path(result_.best_checkpoint)},
          {"epoch", epoch_now()},
          {"eval_steps", eval_steps_},
          {"global_step", step_},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {"log_history", result_.log_history},
          {"logging_steps", o_.loop.logging_steps},
          {"max_steps", max_steps_},
          {"num_input_tokens_seen", tokens_seen_},
          {"num_train_epochs", o_.loop.epochs()},
          {"save_steps", save_steps_},
          {"stateful_callbacks", Json::object()},
          {"total_flos", 0.0},
          {"train_batch_size", o_.loop.per_device_train_batch_size},
          {"trial_name", nullptr},
          {"trial_params", nullptr}};
}

// A disk that is full must not end a run that could go on: only the last save of a run throws. What failed at the last
// step is tried again for a while.
void Trainer::save(bool must) {
  save_due_ = false;
  if (p_.gradients) p_.gradients->rest();
  p_.algorithm.settle(p_.actors);
  const std::shared_ptr<void> meant = meant_weights();
  const Json window = log_window();  // of all ranks
  fs::path target = o_.output_dir / str("checkpoint-", step_);
  std::string failure = save_together(target, window);
  if (must && !failure.empty()) failure = save_at_last(target, window, std::move(failure));
  require(
      failure.empty() || !must, Fault::Io, failure, ". The weights of step ", step_, " are lost; ",
      last_saved_ >= 0 ? str("the checkpoint of step ", last_saved_, " is whole") : "there is no earlier checkpoint",
      ". --save_fallback_dir names a second place");
  if (failure.empty()) {
    last_saved_ = step_;
    if (p_.data_ranks.rank() == 0) after_save(target);
  } else if (p_.data_ranks.rank() == 0) {
    log_warning("no checkpoint at step ", step_, ": ", failure,
                step_ < max_steps_ ? ". Training goes on; earlier checkpoints are untouched" : "");
  }
}

// Nothing is trained any more, and what is not written is lost. All ranks count tries, not seconds, so that they agree.
std::string Trainer::save_at_last(fs::path& target, const Json& window, std::string failure) {
  const bool speaks = p_.data_ranks.rank() == 0;
  const std::string name = target.filename();
  std::vector<fs::path> places;
  if (o_.loop.save_fallback_dir)
    places.push_back(fs::path(*o_.loop.save_fallback_dir) / fs::absolute(o_.output_dir).filename() / name);
  const double seconds = o_.loop.save_retry_seconds, pause = std::clamp(seconds / 30, 0.1, 10.0);
  const auto tries = static_cast<int64_t>(std::ceil(seconds / pause));
  for (int64_t i = 0; i <= tries; ++i) {
    if (i == 0 && speaks && !places.empty())
      log_warning("the last checkpoint is not written: ", failure, ". It goes to ", places[0].string());
    if (i == 0 && speaks && places.empty() && tries > 0)
      log_warning("the last checkpoint is not written: ", failure, ". It is tried again for ", seconds,
                  " s (--save_retry_seconds): make room");
    if (i > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    if (i == 1) places.push_back(target);
    for (const fs::path& place : places)
      if (failure = save_together(place, window); failure.empty()) {
        target = place;
        return failure;
      }
  }
  return failure;
}

namespace {
// What a full disk says is told; anything else ends the run.
std::string why_not_written(const std::function<void()>& write) {
  try {
    write();
    return "";
  } catch (const Error& e) {
    if (e.at.fault != Fault::Io) throw;
    return e.what();
  }
}

// Optimizer::steps_of of all ranks, each of which may know other parameters.
Json updates_of_all(const Optimizer& optimizer, Comm& ranks) {
  Json all = Json::object();
  for (const std::string& text : gather_text(json_text(optimizer.steps_of()), ranks))
    all.update(parse_json(text, "the updates that a rank counted", Fault::Comm));
  return all;
}

// The first failure of all ranks', with the rank whose it is.
std::string first_of(const std::string& mine, Comm& ranks) {
  const std::vector<std::string> all = gather_text(mine, ranks);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) return all.size() > 1 ? str("rank ", rank, ": ", all[rank]) : all[rank];
  return "";
}
}  // namespace

// The first rank makes the folder and names it when all have written theirs. All ranks wait here for each other.
std::string Trainer::save_together(const fs::path& target, const Json& window) {
  const bool first = p_.data_ranks.rank() == 0;
  std::unique_ptr<FolderWriter> folder;
  std::string failure;
  if (first) failure = why_not_written([&] { folder = std::make_unique<FolderWriter>(target); });
  const fs::path dir = gather_text(folder ? folder->dir().string() : "", p_.data_ranks)[0];
  if (dir.empty()) return first_of(failure, p_.data_ranks);
  const bool sliced = p_.gradients && p_.gradients->sliced();
  if (sliced) {  // all or none go on: they gather weights together
    failure = fs::is_directory(dir) ? ""
                                    : str("this rank does not see ", dir.string(),
                                          ": each rank writes its slice of the optimizer's state, so --output_dir must "
                                          "be a folder that all share");
    if (const std::string any = first_of(failure, p_.data_ranks); !any.empty()) return any;
  }
  const Json updates = sliced ? updates_of_all(p_.optimizer, p_.data_ranks) : Json(p_.optimizer.steps_of());
  failure = why_not_written([&] {
    if (!first && !sliced) return;
    p_.save_model(dir);
    const GradientSync::Slice own = slice();
    if (!o_.loop.save_only_model && own.first) {
      auto kept = p_.optimizer.state();
      if (p_.ranks) kept.merge(p_.ranks->state());
      write_optimizer(dir, p_.optimizer.kind(), kept, own.number, own.of, p_.in_parts ? &p_.places : nullptr);
    }
    if (!first) return;
    RunState s = state();
    s.progress["log_window"] = window, s.progress["optimizer_steps_of"] = updates;
    write_state(dir, s);
  });
  if (const std::string any = first_of(failure, p_.data_ranks); !any.empty()) return any;
  if (first) failure = why_not_written([&] { folder->commit(); });
  return first_of(failure, p_.data_ranks);
}

void Trainer::after_save(const fs::path& target) {
  log_info("Saving model checkpoint to ", target.string());
  result_.last_checkpoint = target;
  if (p_.saved) p_.saved(target);
  if (target.parent_path() != o_.output_dir) return;  // the second place
  std::vector<fs::path> keep = {target};
  if (result_.best_checkpoint) keep.push_back(*result_.best_checkpoint);
  rotate_checkpoints(o_.output_dir, o_.loop.save_total_limit.value_or(0), keep);
  if (!o_.loop.create_checkpoint_symlink) return;
  point_link(o_.output_dir, "last", target);
  if (result_.best_checkpoint && fs::exists(*result_.best_checkpoint))
    point_link(o_.output_dir, "best", *result_.best_checkpoint);
}

// What the next log line tells of, so far: a run that goes on from here continues it.
Json Trainer::log_window() {
  return {{"loss", loss_since_log_},
          {"steps", logged_steps_},
          {"grad_norm", last_norm_},
          {"metrics", metrics_.sums(p_.data_ranks)}};
}

}  // namespace apus
