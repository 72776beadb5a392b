// SPDX-License-Identifier: Apache-2.0
// How long a run lasts, and when it logs, evaluates and saves: what the trainer itself looks at, as its flags say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "ops/fp8_recipe.h"

namespace apus {

struct LoopOptions {
  int64_t max_steps = -1;  // > 0 wins over epochs
  double num_train_epochs = 3;
  std::optional<double> max_epochs;  // the end after so many passes, whatever max_steps says
  int64_t per_device_train_batch_size = 1, per_device_eval_batch_size = 1;
  std::optional<int64_t> gradient_accumulation_steps;
  double max_grad_norm = 1;         // 0: no clipping
  bool update_in_backward = false;  // train/update_in_backward.h
  // How it clips: "second_pass", "last_norm"; absent: it does not.
  std::optional<std::string> clip_in_backward;
  double router_aux_loss_coef = 0;
  // Above 0: an expert takes this times its even share of a micro-batch's tokens, and these of them (nn/router.h).
  double moe_expert_capacity_factor = 0;
  std::string moe_token_drop_policy = "probs";
  std::optional<std::string> fp8_format;  // e4m3, hybrid; absent: products are of the weights' type
  std::string fp8_recipe = "tensorwise";  // mxfp8, blockwise
  std::optional<Fp8Recipe> fp8() const;
  std::optional<std::string> max_run_time;  // the end, with a checkpoint, before so long
  double run_seconds() const;               // of it; 0: for ever
  int64_t max_bad_steps = 10;               // updates in a row without finite gradients that end the run
  std::string save_strategy = "steps";
  std::optional<std::string> eval_strategy;
  // Updates between; below 1: a share of the run.
  double save_steps = 500;
  std::optional<double> eval_steps;
  std::optional<int64_t> save_total_limit;
  std::optional<std::string> save_fallback_dir;  // where the last checkpoint goes when the run's folder takes none
  double save_retry_seconds = 300;               // for so long the last save is tried again
  bool async_save = true;                        // checkpoints are written behind the steps (train/save_behind.h)
  bool save_only_model = false, create_checkpoint_symlink = false, eval_on_start = false;
  std::optional<std::string> metric_for_best_model;
  std::optional<bool> greater_is_better;
  bool predict_with_generate = false;
  std::string eval_metric = "nlg";  // of predict_with_generate: which figure decides
  std::optional<int64_t> early_stop_interval;
  std::vector<std::string> callbacks;
  int64_t logging_steps = 5;
  bool logging_first_step = true;
  bool profile = false;

  int64_t accumulation(int64_t ranks) const;  // micro-batches of a collection, on each rank
  double epochs() const { return max_epochs.value_or(num_train_epochs); }
  std::string best_metric() const;     // its name in the evaluation's line
  bool greater_metric_wins() const;    // of best_metric()
  int64_t patience() const;            // evaluations without improvement that end the run; 0: none
  void fields(OptionTable& v);         // of training
  void saving_fields(OptionTable& v);  // saving, evaluation, log
  void check() const;
};

}  // namespace apus
