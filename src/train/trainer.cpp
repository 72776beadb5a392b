// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "device/agree.h"
#include "parallel/gradient_sync.h"
#include "train/chosen_layers.h"
#include "train/rank_allocator.h"

namespace apus {

namespace {

When when(const std::string& strategy) {
  return strategy == "steps" ? When::Steps : strategy == "epoch" ? When::Epoch : When::Never;
}

// Below 1 a share of the run.
int64_t interval(double steps, int64_t total) {
  return steps >= 1 ? static_cast<int64_t>(steps)
                    : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps * static_cast<double>(total))));
}

}  // namespace

Trainer::Trainer(TrainerParts parts, TrainerOptions options)
    : p_(std::move(parts)),
      o_(std::move(options)),
      accumulation_(p_.algorithm.batches_per_collection().value_or(o_.loop.accumulation(readers()))),
      limit_(o_.loop.run_seconds(), p_.began) {
  p_.actors.data_ranks = &p_.data_ranks;
  require(accumulation_ > 0, Fault::Usage, "--gradient_accumulation_steps must be above 0");
  if (o_.loop.update_in_backward) {
    require(accumulation_ == 1 && (o_.loop.max_grad_norm == 0 || o_.loop.clip_in_backward) && p_.data_ranks.size() == 1,
            Fault::Usage,
            "updates inside the backward pass are for one process, without accumulation, and with clipping only by "
            "--clip_in_backward");
    in_backward_ = std::make_unique<UpdateInBackward>(p_.optimizer);
  }
  max_steps_ = planned_steps();
  require(max_steps_ > 0, Fault::Usage, "--num_train_epochs ", o_.loop.epochs(), " and --max_steps ", o_.loop.max_steps,
          " leave nothing to train");
  save_ = when(o_.loop.save_strategy), save_steps_ = interval(o_.loop.save_steps, max_steps_);
  if (p_.eval || p_.evaluate_more) eval_ = when(o_.loop.eval_strategy.value_or(o_.loop.save_strategy));
  eval_steps_ = interval(o_.loop.eval_steps.value_or(o_.loop.save_steps), max_steps_);
  p_.actors.more_rows = [this]() -> std::optional<Samples> {
    std::optional<Samples> samples = p_.train.next();
    if (samples) ++micro_in_epoch_;
    return samples;
  };
  schedule_ = p_.schedule(max_steps_);
  if (p_.ranks) p_.ranks->plan(max_steps_);
}

// Of a pass over so many micro-batches.
int64_t Trainer::steps_of(double micro_batches) const {
  const auto collections = static_cast<int64_t>(std::ceil(micro_batches / static_cast<double>(accumulation_)));
  return collections * p_.algorithm.updates_per_collection();
}

// The rank with the most micro-batches decides: others may have one less.
int64_t Trainer::planned_steps() {
  if (o_.loop.max_steps > 0) return o_.loop.max_steps;
  auto size = static_cast<double>(p_.train.size());
  if (size < 0) {
    require(o_.loop.max_epochs.has_value(), Fault::Usage,
            "the length of a streamed dataset is not known: give --max_steps");
    log_info("without --max_steps the batches of the stream are counted first");
    size = 0;
    for (p_.train.start(0); p_.train.next();) ++size;
  }
  const double most = largest_of(p_.data_ranks, size);
  require(most > 0, Fault::Data, "the training dataset is empty: every row was rejected, or there was none");
  return static_cast<int64_t>(std::ceil(o_.loop.epochs() * static_cast<double>(steps_of(most))));
}

GradientSync::Slice Trainer::slice() const {
  if (!p_.gradients || !p_.gradients->sliced()) return {.first = p_.data_ranks.rank() == 0};
  return p_.gradients->slice().value_or(GradientSync::Slice{p_.data_ranks.rank(), p_.data_ranks.size()});
}

// A run goes on with more or fewer ranks when all of them together take as many micro-batches for an update as before.
// -> how many there were.
int64_t Trainer::take_other_ranks(const RunState& saved, RunState& mine) const {
  constexpr const char *kRanks = "data_parallel_ranks", *kEach = "gradient_accumulation_steps";
  const int64_t ranks = readers();
  if (!saved.exact.contains(kRanks) || !saved.exact.contains(kEach) || !mine.exact.contains(kRanks)) return ranks;
  const auto there = saved.exact[kRanks].get<int64_t>(), taken = there * saved.exact[kEach].get<int64_t>();
  if (there == ranks) return ranks;
  require(taken == ranks * accumulation_, Fault::Usage, "the checkpoint is of ", there, " ranks that took ", taken,
          " micro-batches for an update, and these ", ranks, " would take ", ranks * accumulation_, ": ",
          taken % ranks == 0 ? str("give --gradient_accumulation_steps ", taken / ranks, " with ", ranks, " ranks")
                             : str("start as many ranks as divide ", taken),
          ", or go on from the weights alone with --resume_only_model true --ignore_data_skip true");
  require(!saved.data.is_object() || saved.data.value("kind", "") != "streamed", Fault::Usage,
          "the place in streamed rows is that of ", there,
          " ranks: go on with as many, or give --ignore_data_skip true");
  for (const char* key : {kRanks, kEach}) mine.exact[key] = saved.exact[key];
  if (p_.log) log_info("the checkpoint is of ", there, " ranks; ", ranks, " go on from it");
  return there;
}

// The state of what this rank holds, however the run before had shared it out.
std::map<std::string, at::Tensor> Trainer::own_state(const RunState& saved) const {
  const GradientSync::Slice own = slice();
  const auto of = static_cast<size_t>(own.of), number = static_cast<size_t>(own.number);
  const bool said = !saved.optimizer_places.empty(), as_many = saved.optimizer_slices.size() == of;
  require(!saved.in_parts || said || (p_.in_parts && as_many), Fault::Usage, "the checkpoint is of ",
          saved.optimizer_slices.size(),
          " ranks that shared out the model, and an older build wrote it, which did not "
          "say how: go on with as many ranks and the same sizes of the mesh, or from the weights alone with "
          "--resume_only_model true");
  const bool same = saved.in_parts ? p_.in_parts && as_many &&
                                         (!said || json_of(saved.optimizer_places.at(number)) == json_of(p_.places))
                                   : !p_.in_parts;
  if (same || p_.ranks) return state_slice(saved, own.number, own.of);
  if (p_.log) log_info("the optimizer's state is put together anew: the model was shared out otherwise");
  return state_at(saved, p_.places);
}

void Trainer::resume(const RunState& saved, Resume what) {
  RunState mine = state();
  if (!what.data) mine.exact = saved.exact;
  if (!what.optimizer) mine.optimizer = saved.optimizer;
  if (p_.layers) p_.layers->before_step(saved.step);
  const int64_t there = take_other_ranks(saved, mine);
  for (const std::string& change : check_resume(saved, mine)) log_warning("resumed ", change);
  require(saved.step < max_steps_, Fault::Usage, "the checkpoint stands at step ", saved.step,
          ", and this run ends at step ", max_steps_, ": raise --num_train_epochs or --max_steps to go on");
  if (what.optimizer) {
    std::map<std::string, at::Tensor> kept = own_state(saved);
    if (p_.ranks) p_.ranks->load(kept);
    std::erase_if(kept, [](const auto& entry) { return RankAllocator::is_state(entry.first); });
    // Saved beside the weights that are meant.
    const std::shared_ptr<void> meant = meant_weights();
    p_.optimizer.load(kept, saved.progress.value("optimizer_steps", saved.step),
                      saved.progress.value("optimizer_steps_of", std::map<std::string, int64_t>()));
  }
  step_ = first_step_ = saved.step;
  last_saved_ = last_evaluated_ = step_;
  result_.log_history = saved.trainer.value("log_history", Json::array());
  tokens_at_line_ = tokens_seen_ = saved.trainer.value("num_input_tokens_seen", int64_t{0});
  if (const Json window = saved.progress.value("log_window", Json::object()); !window.empty() && what.optimizer) {
    loss_since_log_ = window["loss"].get<double>(), logged_steps_ = window["steps"].get<int64_t>();
    last_norm_ = window["grad_norm"].get<double>();
    if (p_.data_ranks.rank() == 0) metrics_.restore(window["metrics"]);
  }
  evaluations_without_gain_ = saved.progress.value("evaluations_without_gain", int64_t{0});
  if (const auto best = saved.trainer.find("best_metric"); best != saved.trainer.end() && best->is_number())
    result_.best_metric = best->get<double>();
  if (const auto path = saved.trainer.find("best_model_checkpoint"); path != saved.trainer.end() && path->is_string())
    result_.best_checkpoint = path->get<std::string>();
  if (const auto best = saved.trainer.find("best_global_step"); best != saved.trainer.end() && best->is_number())
    result_.best_step = best->get<int64_t>();
  if (p_.log) p_.log->go_on_from(step_, result_.log_history);
  if (what.optimizer) p_.algorithm.restore(saved.progress.value("algorithm", Json::object()));
  if (!what.data) return;
  epoch_ = saved.epoch;
  const int64_t ranks = readers();
  micro_in_epoch_ = (saved.progress.value("micro_batches_in_epoch", int64_t{0}) * there + ranks - 1) / ranks;
  result_.rows = saved.progress.value("rows", int64_t{0});
  p_.train.start(epoch_);
  p_.train.restore(saved.data);
  // The run stopped within a collection: it is made again, and its first updates are not.
  if (const auto done = saved.progress.value("updates_of_collection", size_t{0}); done > 0) {
    require(collect() && done < collection_.updates.size(), Fault::Data, "the checkpoint was made after update ", done,
            " of a collection, and the data here give none with so many; give the same datasets and options, or "
            "--ignore_data_skip true");
    collection_.done = done;
  }
}

// Of a stream, whose length is not known, the run as planned counts as one pass.
double Trainer::epoch_now() const {
  const int64_t known = p_.train.size(), size = known > 0 ? known : max_steps_ * accumulation_;
  return static_cast<double>(epoch_) + static_cast<double>(micro_in_epoch_) / static_cast<double>(size);
}

std::vector<Samples> Trainer::next_rows() {
  std::vector<Samples> rows;
  while (static_cast<int64_t>(rows.size()) < accumulation_) {
    auto samples = p_.train.next();
    if (!samples) break;
    rows.push_back(std::move(*samples));
  }
  return rows;
}

// False at the epoch's end, on all ranks together; a rank that runs out a little earlier than others goes on with none.
bool Trainer::collect() {
  collection_ = {.micro_batches = micro_in_epoch_, .rows = result_.rows};
  if (p_.algorithm.updates_per_collection() > 1) collection_.position = p_.train.position();
  std::vector<Samples> rows = next_rows();
  double groups = 0;
  for (const Samples& samples : rows)
    groups += static_cast<double>(
        std::count_if(samples.begin(), samples.end(), [](const Sample& sample) { return !sample.grouped; }));
  micro_in_epoch_ += static_cast<int64_t>(rows.size());
  const double all = summed(groups) / static_cast<double>(p_.row_sharers * p_.group_sharers);
  if (all == 0) return false;
  result_.rows += static_cast<int64_t>(all);
  p_.actors.step = step_;
  explained_memory([&] {
    const std::shared_ptr<void> alone = p_.alone ? p_.alone() : nullptr;
    collection_.updates = p_.algorithm.collect(p_.actors, std::move(rows));
  });
  require(static_cast<int64_t>(collection_.updates.size()) == p_.algorithm.updates_per_collection(), Fault::Bug,
          "the algorithm collected ", collection_.updates.size(), " updates instead of ",
          p_.algorithm.updates_per_collection());
  return true;
}

TrainResult Trainer::run() {
  if (step_ == first_step_ && micro_in_epoch_ == 0 && epoch_ == 0) p_.train.start(0);
  watch_.restart();
  if (p_.layers) p_.layers->before_step(step_);
  make_optimizer_state();
  if (o_.loop.eval_on_start && step_ == 0 && (p_.eval || p_.evaluate_more)) evaluate();
  progress_ = std::make_unique<Progress>("Train", max_steps_, Progress::Spec{.unit = "step", .skipped = step_});
  progress_->set(step_);
  bool ended = false, fresh_epoch = false;
  while (!ended && step_ < max_steps_) {
    trace(false);
    step_watch_.restart();
    if (collection_.open() || collect()) {
      const StepResult result = step(std::move(collection_.updates[collection_.done++]));
      ended = after_step(result, false);
      fresh_epoch = false;
      continue;
    }
    require(!fresh_epoch, Fault::Data, "the training dataset gives no batch: every row was rejected");
    ended = after_step({}, true);
    ++epoch_, micro_in_epoch_ = 0, fresh_epoch = true;
    ended = ended || (o_.loop.max_epochs && static_cast<double>(epoch_) >= *o_.loop.max_epochs);
    p_.train.start(epoch_);
  }
  finish_run();
  return result_;
}

void Trainer::finish_run() {
  trace(true);
  if (eval_ != When::Never && last_evaluated_ != step_ && !result_.interrupted) evaluate();
  settle_save();
  if ((save_ != When::Never || result_.interrupted) && last_saved_ != step_) save(true);
  if (result_.best_checkpoint && !std::filesystem::exists(*result_.best_checkpoint))
    result_.best_checkpoint.reset();  // evaluated, never saved
  progress_->finish();
  if (p_.log) {
    const double seconds = watch_.seconds(), done = static_cast<double>(step_ - first_step_);
    log_info("trained ", step_ - first_step_, " steps in ", spoken_time(seconds),
             done > 0 ? str(", ", rounded(seconds / done, 3), " s a step") : "");
    p_.log->plots();
  }
  result_.step = step_;
}

// True when the run is to end before its last step.
bool Trainer::after_step(const StepResult& r, bool epoch_ended) {
  if (!epoch_ended) {
    ++step_;
    progress_->set(step_);
    if (r.updated) loss_since_log_ += r.loss, ++logged_steps_, last_norm_ = r.grad_norm;
    if ((step_ == 1 && o_.loop.logging_first_step) || step_ % o_.loop.logging_steps == 0 || step_ == max_steps_)
      log_training();
  }
  const auto due = [&](When when, int64_t every) {
    return when == When::Epoch ? epoch_ended : when == When::Steps && !epoch_ended && step_ % every == 0;
  };
  if ((p_.eval || p_.evaluate_more) && due(eval_, eval_steps_) && last_evaluated_ != step_) evaluate();
  save_due_ = save_due_ || due(save_, save_steps_);
  // What cannot be collected again is trained to its end before the run is saved, or stops.
  if (collection_.open() && p_.algorithm.collects_by_policy()) return false;
  // While nothing but nan comes out, checkpoints would only push the good ones out.
  if (save_due_ && bad_in_a_row_ == 0 && last_saved_ != step_) {
    const Stopwatch saving;
    save(false);
    limit_.save_took(saving.seconds());
  }
  return asked_to_stop();
}

bool Trainer::asked_to_stop() {
  limit_.step_took(step_watch_.seconds());
  const SaveBehind* const behind = writing_ ? writing_->behind.get() : nullptr;
  if (behind) limit_.save_took(behind->seconds());
  const int saves = behind && !behind->done() ? 2 : 1;
  const bool near = limit_.is_near(saves), raised = p_.stop && p_.stop->raised();
  if ((p_.stop || limit_.any()) && summed(raised || near ? 1 : 0) > 0) {
    const std::string why =
        near && !raised ? str("since --max_run_time leaves ", duration_text(limit_.left()),
                              ", and another step with a checkpoint may take ", duration_text(limit_.needed(saves)))
                        : "as asked";
    log_warning("stopping after step ", step_, " ", why, "; the run can be resumed from its last checkpoint");
    return result_.interrupted = true;
  }
  const int64_t patience = o_.loop.patience();
  if (patience > 0 && evaluations_without_gain_ >= patience) {
    log_info(o_.loop.best_metric(), " did not improve in ", evaluations_without_gain_,
             " evaluations: stopping early after step ", step_);
    return result_.stopped_early = true;
  }
  return false;
}

}  // namespace apus
