// SPDX-License-Identifier: Apache-2.0
// The training loop: collect, loss, backward, clip, update; log, evaluate, save; stop and resume.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/progress.h"
#include "base/signals.h"
#include "checkpoint/state.h"
#include "data/source/sample_source.h"
#include "device/comm.h"
#include "device/trace.h"
#include "parallel/gradient_sync.h"
#include "train/algorithm.h"
#include "train/loss_parts.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/options/loop_options.h"
#include "train/record/early_signs.h"
#include "train/record/run_log.h"
#include "train/record/schedule.h"
#include "train/save_behind.h"
#include "train/time_limit.h"
#include "train/update_in_backward.h"

namespace apus {

class Pipeline;       // parallel/pipeline.h
class ChosenLayers;   // train/chosen_layers.h
class RankAllocator;  // train/rank_allocator.h
class Store;          // device/store.h
struct RouterLoss;    // nn/moe.h

enum class When { Never, Steps, Epoch };

struct TrainerOptions {
  LoopOptions loop;  // as the command's flags say it
  uint64_t seed = 42;
  Forward forward;
  bool wide_gradients = false;  // micro-batches add up in f32 (with several ranks their GradientSync does it)
  int64_t token_groups = 0;     // LongLoRA: tokens of a group (nn/token_groups.h); 0: none
  double token_flops = 0, peak_flops = 0;  // of a trained token; of all devices in a second. 0: not known
  std::filesystem::path output_dir;
  Json exact, noted;  // see RunState
};

// What the trainer is given to work with. References outlive it.
struct TrainerParts {
  Algorithm& algorithm;
  Actors actors;
  Optimizer& optimizer;
  std::function<Schedule(int64_t steps)> schedule;  // made when the number of steps is known
  double base_lr;
  SampleSource& train;
  SampleSource* eval = nullptr;
  // What this rank updates of each parameter, and whether ranks share out the model.
  StatePlaces places = {};
  bool in_parts = false;
  Comm& data_ranks;  // of host tensors: counts, decisions
  // So many among them are given the same rows, and share out the tokens of each, or the model: whatever they count
  // together, they count so many times, the number of tokens as the losses.
  int64_t row_sharers = 1;
  // This rank's number among those with rows of their own. Absent: neighbours share rows.
  std::optional<int64_t> reader = std::nullopt;
  // So many neighbouring readers of rows are given the same ones to train on, and answer each of them together.
  int64_t group_sharers = 1;
  GradientSync* gradients = nullptr;  // null with one rank
  Pipeline* pipeline = nullptr;       // of which this rank is a stage
  RankAllocator* ranks = nullptr;     // of an adapter of AdaLoRA
  ChosenLayers* layers = nullptr;     // LISA
  RunLog* log = nullptr;              // on the first rank
  c10::Device device = c10::Device(c10::kCPU);
  // Weights or adapter, configs. By the first rank; by all together where they share out the optimizer's state.
  std::function<void(const std::filesystem::path& dir)> save_model;
  std::function<void(const std::filesystem::path& checkpoint)> saved = {};  // told of each whole checkpoint
  std::function<Json()> evaluate_more;  // by generation; eval_* values, may be empty
  // Bytes of the host's memory that a checkpoint may take until it is written, behind the steps that follow; asked on
  // the way. Absent: training waits until it is written.
  std::function<int64_t()> room = {};
  Store* store = nullptr;  // of all ranks; null with one
  const StopFlag* stop = nullptr;
  Stopwatch began = {};  // of --max_run_time
  // Hears of every update before it is made.
  std::function<void(int64_t step)> begins_step = {};
  // Where ranks make passes of their own to collect, which differ in number: until the result is let go of, nothing
  // that they share out is asked of one another (LayerRunner::alone). Null: they make none, or share nothing out.
  std::function<std::shared_ptr<void>()> alone = {};
};

struct TrainResult {
  int64_t step = 0;  // updates
  int64_t rows = 0;  // groups of samples that were collected, over all ranks
  bool stopped_early = false, interrupted = false;
  std::optional<std::filesystem::path> last_checkpoint, best_checkpoint;
  std::optional<double> best_metric;
  std::optional<int64_t> best_step;
  Json log_history = Json::array();
  int64_t bad_steps = 0;
  double memory = 0;  // GiB, the most there was
};

class Trainer {
 public:
  Trainer(TrainerParts parts, TrainerOptions options);
  // Goes on from a checkpoint's state (its weights are loaded already).
  struct Resume {
    bool optimizer = true;  // its state; false: the weights alone go on
    bool data = true;       // from the place where it stopped; false: from the beginning
  };
  void resume(const RunState& state, Resume what);
  TrainResult run();
  int64_t max_steps() const { return max_steps_; }

 private:
  struct StepResult {
    double loss = 0, grad_norm = 0;
    bool updated = false;
  };
  // What the updates at hand were collected from, and how many of them are done.
  struct Collection {
    std::vector<Update> updates;
    size_t done = 0;
    // Where the source stood and what was counted at its beginning; kept when it has several updates.
    Json position;
    int64_t micro_batches = 0, rows = 0;
    bool open() const { return done < updates.size(); }
  };
  // trainer.cpp: the loop
  GradientSync::Slice slice() const;  // this rank's, of the optimizer's state
  // Ranks with rows of their own.
  int64_t readers() const { return p_.data_ranks.size() / (p_.row_sharers * p_.group_sharers); }
  std::map<std::string, at::Tensor> own_state(const RunState& saved) const;
  int64_t take_other_ranks(const RunState& saved, RunState& mine) const;
  int64_t planned_steps();
  int64_t steps_of(double micro_batches) const;
  bool collect();
  std::vector<Samples> next_rows();
  bool after_step(const StepResult& r, bool epoch_ended);
  bool asked_to_stop();
  double epoch_now() const;
  void finish_run();
  // update.cpp: one step
  void make_optimizer_state();
  StepResult step(Update batches);  // compute, its errors explained
  void explained_memory(const std::function<void()>& work) const;
  StepResult compute(Update& batches);
  double backward(Update& batches, double total, bool only_measured = false);
  // Between the two passes of a micro-batch.
  struct Pass {
    Loss loss;         // of a piece in front of the last one: what it gives, and nothing shown
    at::Tensor input;  // of a piece behind the first one
    std::shared_ptr<RouterLoss> router;
    double share = 0, balance = 0;
  };
  Pass forward_of(Batch& batch, uint64_t micro, double total);
  void backward_of(Batch& batch, Pass pass, double total, bool only_measured, LossParts& parts);
  Loss loss_of(Batch& batch, const Forward& forward);
  Loss loss_of_all(Batch& batch, const Forward& forward);
  void add_penalty(Loss& loss, double count) const;
  double pipelined(Update& batches, double total);
  std::string find_not_finite_in_stages(Update& batches);
  bool gives_losses() const;  // false: a piece in front of the last one
  double stages() const;
  void keep_step(const Batch* like);
  const Batch& spare();
  std::optional<double> scale_in_backward(Update& batches, double total);
  void left_out(const std::string& what);
  void prepare(Batch& batch, uint64_t micro, const std::shared_ptr<RouterLoss>& router, double share) const;
  double gradient_norm() const;  // over all ranks
  double summed(double value) const;
  std::string find_not_finite(Update& batches);
  std::string first_known(const std::string& mine) const;
  // report.cpp: logging, evaluation
  Json straggler();
  Json throughput();
  void log_training();
  void evaluate();
  void judge(const Json& line);  // is it the best so far?
  // The weights are what the optimizer means until the result is let go of; null: they are already.
  std::shared_ptr<void> meant_weights();
  Json log_window();
  RunState state() const;
  Json trainer_json() const;
  void report(Json values, const Json& times = Json::object());
  void trace(bool ends);  // --profile: begins and ends between steps
  // saving.cpp: checkpoints
  struct Writing {
    std::filesystem::path target;
    int64_t before = -1;                 // the step of the checkpoint before it
    std::unique_ptr<SaveBehind> behind;  // null: others write it
  };
  void save(bool must);
  void settle_save();
  void say_not_saved(int64_t step, const std::string& failure) const;
  // The last save, after a failure: elsewhere, or again and again.
  std::string save_at_last(std::filesystem::path& target, const Json& window, std::string failure);
  // Why it failed; empty: it is saved, or (behind) will be.
  std::string save_together(const std::filesystem::path& target, const Json& window, bool behind);
  void write_part(const std::filesystem::path& dir, const Json& window, const Json& updates);
  bool writes_in_parts() const;  // each rank has one of a checkpoint
  std::unique_ptr<SaveBehind> save_behind() const;
  void begin_writing(Writing writing, const std::shared_ptr<FolderWriter>& folder);
  void after_save(const std::filesystem::path& target, const std::optional<std::filesystem::path>& best, double waited,
                  const std::string& more = "") const;

  TrainerParts p_;
  TrainerOptions o_;
  std::unique_ptr<UpdateInBackward> in_backward_;
  std::optional<Batch> spare_;  // run through in step with others when this rank has no batch; counts nothing
  Schedule schedule_;
  Collection collection_;
  const int64_t accumulation_;
  When save_ = When::Never, eval_ = When::Never;
  int64_t save_steps_ = 0, eval_steps_ = 0;
  int64_t max_steps_ = 0, step_ = 0, first_step_ = 0, epoch_ = 0, micro_in_epoch_ = 0, bad_in_a_row_ = 0;
  int64_t evaluations_without_gain_ = 0, last_saved_ = -1, last_evaluated_ = -1;
  bool save_due_ = false;
  int64_t logged_steps_ = 0, tokens_seen_ = 0;
  double stepping_ = 0;  // seconds that updates took since the last line, and the tokens then
  int64_t tokens_at_line_ = 0;
  double loss_since_log_ = 0, last_norm_ = 0, last_lr_ = 0;
  Metrics metrics_;
  EarlySigns signs_;
  TrainResult result_;
  Stopwatch watch_;
  Stopwatch step_watch_;    // of this pass of the loop
  double own_seconds_ = 0;  // of passes since the last line, without waiting for others' gradients
  TimeLimit limit_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Trace> trace_;
  Stopwatch trace_watch_;
  Stopwatch save_watch_;
  std::optional<Writing> writing_;  // the checkpoint that is not settled; goes first, as its thread uses the others
};

}  // namespace apus
