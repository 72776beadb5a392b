// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "device/agree.h"

namespace apus {

Trainer::Trainer(TrainerParts parts, TrainerOptions options) : p_(std::move(parts)), o_(std::move(options)) {
  require(o_.gradient_accumulation_steps > 0, Fault::Usage, "--gradient_accumulation_steps must be above 0");
  if (o_.update_in_backward) {
    require(o_.gradient_accumulation_steps == 1 && o_.max_grad_norm == 0 && p_.data_ranks.size() == 1, Fault::Usage,
            "updates inside the backward pass are for one process, without accumulation and without clipping");
    in_backward_ = std::make_unique<UpdateInBackward>(p_.optimizer);
  }
  if (o_.max_steps > 0) {
    max_steps_ = o_.max_steps;
  } else {
    require(p_.train.size() >= 0, Fault::Usage, "the length of a streamed dataset is not known: give --max_steps");
    require(p_.train.size() > 0, Fault::Data,
            "the training dataset is empty: every row was rejected, or there was none");
    max_steps_ = static_cast<int64_t>(std::ceil(o_.num_train_epochs * static_cast<double>(steps_per_epoch())));
  }
  require(max_steps_ > 0, Fault::Usage, "--num_train_epochs ", o_.num_train_epochs, " and --max_steps ", o_.max_steps,
          " leave nothing to train");
  schedule_ = p_.schedule(max_steps_);
}

// The rank with the most micro-batches decides: others may have one less.
int64_t Trainer::steps_per_epoch() const {
  const auto most = static_cast<int64_t>(largest_of(p_.data_ranks, static_cast<double>(p_.train.size())));
  return (most + o_.gradient_accumulation_steps - 1) / o_.gradient_accumulation_steps;
}

void Trainer::resume(const RunState& saved, Resume what) {
  RunState mine = state();
  if (!what.data) mine.exact = saved.exact;
  if (!what.optimizer) mine.optimizer = saved.optimizer;
  for (const std::string& change : check_resume(saved, mine)) log_warning("resumed ", change);
  require(saved.step < max_steps_, Fault::Usage, "the checkpoint stands at step ", saved.step,
          ", and this run ends at step ", max_steps_, ": raise --num_train_epochs or --max_steps to go on");
  if (what.optimizer)
    p_.optimizer.load(saved.optimizer_state, saved.progress.value("optimizer_steps", saved.step),
                      saved.progress.value("optimizer_steps_of", std::map<std::string, int64_t>()));
  step_ = first_step_ = saved.step;
  last_saved_ = last_evaluated_ = step_;
  result_.log_history = saved.trainer.value("log_history", Json::array());
  tokens_seen_ = saved.trainer.value("num_input_tokens_seen", int64_t{0});
  evaluations_without_gain_ = saved.progress.value("evaluations_without_gain", int64_t{0});
  if (const auto best = saved.trainer.find("best_metric"); best != saved.trainer.end() && best->is_number())
    result_.best_metric = best->get<double>();
  if (const auto path = saved.trainer.find("best_model_checkpoint"); path != saved.trainer.end() && path->is_string())
    result_.best_checkpoint = path->get<std::string>();
  if (const auto best = saved.trainer.find("best_global_step"); best != saved.trainer.end() && best->is_number())
    result_.best_step = best->get<int64_t>();
  if (p_.log) p_.log->replay(result_.log_history);
  if (!what.data) return;
  epoch_ = saved.epoch;
  micro_in_epoch_ = saved.progress.value("micro_batches_in_epoch", int64_t{0});
  p_.train.start(epoch_);
  p_.train.restore(saved.data);
}

// Of a stream, whose length is not known, the run as planned counts as one pass.
double Trainer::epoch_now() const {
  const int64_t known = p_.train.size(), size = known > 0 ? known : max_steps_ * o_.gradient_accumulation_steps;
  return static_cast<double>(epoch_) + static_cast<double>(micro_in_epoch_) / static_cast<double>(size);
}

// False at the epoch's end, on all ranks together; a rank that runs out a little earlier than others goes on with none.
bool Trainer::next_batches(std::vector<Batch>& batches) {
  batches.clear();
  while (static_cast<int64_t>(batches.size()) < o_.gradient_accumulation_steps) {
    auto batch = p_.train.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  micro_in_epoch_ += static_cast<int64_t>(batches.size());
  return summed(static_cast<double>(batches.size())) > 0;
}

TrainResult Trainer::run() {
  if (step_ == first_step_ && micro_in_epoch_ == 0 && epoch_ == 0) p_.train.start(0);
  watch_.restart();
  make_optimizer_state();
  if (o_.eval_on_start && step_ == 0 && p_.eval) evaluate();
  progress_ = std::make_unique<Progress>("Train", max_steps_, Progress::Spec{.unit = "step", .skipped = step_});
  progress_->set(step_);
  std::vector<Batch> batches;
  bool ended = false, fresh_epoch = false;
  while (!ended && step_ < max_steps_) {
    if (next_batches(batches)) {
      ended = after_step(step(std::move(batches)), false);
      fresh_epoch = false;
      continue;
    }
    require(!fresh_epoch, Fault::Data, "the training dataset gives no batch: every row was rejected");
    ended = after_step({}, true);
    ++epoch_, micro_in_epoch_ = 0, fresh_epoch = true;
    ended = ended || (o_.max_epochs > 0 && static_cast<double>(epoch_) >= o_.max_epochs);
    p_.train.start(epoch_);
  }
  if (o_.eval != When::Never && p_.eval && last_evaluated_ != step_ && !result_.interrupted) evaluate();
  if ((o_.save != When::Never || result_.interrupted) && last_saved_ != step_) save(true);
  // Evaluated, never saved.
  if (result_.best_checkpoint && !std::filesystem::exists(*result_.best_checkpoint)) result_.best_checkpoint.reset();
  progress_->finish();
  if (p_.log) {
    const double seconds = watch_.seconds(), done = static_cast<double>(step_ - first_step_);
    log_info("trained ", step_ - first_step_, " steps in ", spoken_time(seconds),
             done > 0 ? str(", ", rounded(seconds / done, 3), " s a step") : "");
    p_.log->plots();
  }
  result_.step = step_;
  return result_;
}

// True when the run is to end before its last step.
bool Trainer::after_step(const StepResult& r, bool epoch_ended) {
  if (!epoch_ended) {
    ++step_;
    progress_->set(step_);
    if (r.updated) loss_since_log_ += r.loss, ++logged_steps_, last_norm_ = r.grad_norm;
    if ((step_ == 1 && o_.logging_first_step) || step_ % o_.logging_steps == 0 || step_ == max_steps_) log_training();
  }
  const auto due = [&](When when, int64_t every) {
    return when == When::Epoch ? epoch_ended : when == When::Steps && !epoch_ended && step_ % every == 0;
  };
  if (p_.eval && due(o_.eval, o_.eval_steps) && last_evaluated_ != step_) evaluate();
  save_due_ = save_due_ || due(o_.save, o_.save_steps);
  // While nothing but nan comes out, checkpoints would only push the good ones out.
  if (save_due_ && bad_in_a_row_ == 0 && last_saved_ != step_) save(false);
  if (p_.stop && summed(p_.stop->raised() ? 1 : 0) > 0) {
    log_warning("stopping after step ", step_, " as asked; the run can be resumed from its last checkpoint");
    return result_.interrupted = true;
  }
  if (o_.early_stop_interval > 0 && evaluations_without_gain_ >= o_.early_stop_interval) {
    log_info(o_.metric_for_best_model, " did not improve in ", evaluations_without_gain_,
             " evaluations: stopping early after step ", step_);
    return result_.stopped_early = true;
  }
  return false;
}

}  // namespace apus
