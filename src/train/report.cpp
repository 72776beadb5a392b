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

// Adds what every line ends with, and hands it to the log and the history, which knows no times: a resumed run has the
// same.
void Trainer::report(Json values, const Json& times) {
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
  values.update(times);
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

// Tokens of all ranks in a second of their updates, and what share that is of what the devices could do.
Json Trainer::throughput() {
  const double seconds = std::exchange(stepping_, 0),
               tokens = static_cast<double>(tokens_seen_ - std::exchange(tokens_at_line_, tokens_seen_));
  const double rate = summed(seconds > 0 ? tokens / seconds : 0) / static_cast<double>(p_.row_sharers);
  Json out{{"tokens/s", rounded(rate, 2)}};
  if (o_.peak_flops > 0) out["mfu"] = rounded(rate * o_.token_flops / o_.peak_flops, 4);
  return out;
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
  report(line, throughput());
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
      const Loss part = loss_of_all(here, Forward{});
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

// What the next log line tells of, so far: a run that goes on from here continues it.
Json Trainer::log_window() {
  return {{"loss", loss_since_log_},
          {"steps", logged_steps_},
          {"grad_norm", last_norm_},
          {"metrics", metrics_.sums(p_.data_ranks)}};
}

}  // namespace apus
