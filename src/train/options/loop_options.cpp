// SPDX-License-Identifier: Apache-2.0
#include "train/options/loop_options.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace apus {

void LoopOptions::fields(OptionTable& v) {
  v("num_train_epochs", num_train_epochs, "passes over the data").common().above(0);
  v("max_steps", max_steps, "updates of the run; above 0 it wins over --num_train_epochs").common().at_least(-1);
  v("max_epochs", max_epochs, "ends the run after so many passes; a stream without --max_steps is counted first")
      .above(0);
  v("per_device_train_batch_size", per_device_train_batch_size,
    "rows of a micro-batch (packs, with --packing), on each device")
      .common()
      .at_least(1)
      .alias("batch_size", "its old name")
      .must_match();
  v("gradient_accumulation_steps", gradient_accumulation_steps, "micro-batches whose gradients are added for an update")
      .common()
      .at_least(1)
      .shown_default("so that an update sees 16 rows");
  v("max_grad_norm", max_grad_norm, "gradients are scaled down to this norm; 0: not at all").at_least(0);
  v("update_in_backward", update_in_backward,
    "update each weight in the backward pass as soon as its gradient is complete: gradients never exist all together. "
    "One process, --gradient_accumulation_steps 1, and --max_grad_norm 0 or --clip_in_backward");
  v("clip_in_backward", clip_in_backward,
    "--update_in_backward: how gradients are scaled to --max_grad_norm. second_pass: a backward pass before it "
    "measures the norm, which takes about twice the time. last_norm: by the norm of the step before, which costs "
    "nothing")
      .choices({"second_pass", "last_norm"})
      .shown_default("not at all")
      .noted();
  v("router_aux_loss_coef", router_aux_loss_coef,
    "mixture of experts: weight of the loss that keeps experts busy alike")
      .at_least(0)
      .noted();
  v("moe_expert_capacity_factor", moe_expert_capacity_factor,
    "mixture of experts: in training an expert takes so many times its even share of a micro-batch's tokens at most; "
    "0: all that are sent to it")
      .at_least(0)
      .noted();
  v("moe_token_drop_policy", moe_token_drop_policy,
    "--moe_expert_capacity_factor: which tokens an expert takes: those that like it best, or those that come first")
      .choices({"probs", "position"})
      .noted();
  v("fp8_format", fp8_format,
    "linear layers multiply FP8 numbers in training: all of them E4M3, or (hybrid) gradients E5M2")
      .choices({"e4m3", "hybrid"})
      .shown_default("no FP8")
      .noted();
  v("fp8_recipe", fp8_recipe,
    "--fp8_format: what shares a scale: all numbers of a tensor; 128 of a row and 128 x 128 of a weight (blockwise); "
    "or "
    "32 (mxfp8)")
      .choices({"tensorwise", "blockwise", "mxfp8"})
      .noted();
  v("max_run_time", max_run_time,
    "ends the run with a checkpoint before it takes longer, as SIGTERM does: 3h30m, 90m, 23:50:00, 1-12:00:00")
      .shown_default("as long as it takes");
  v("max_bad_steps", max_bad_steps, "updates in a row without finite gradients that end the run").at_least(1);
  v("per_device_eval_batch_size", per_device_eval_batch_size, "rows of a micro-batch in evaluations, on each device")
      .at_least(1)
      .alias("eval_batch_size", "its old name");
}

std::optional<Fp8Recipe> LoopOptions::fp8() const {
  if (!fp8_format) return std::nullopt;
  using Scale = Fp8Recipe::Scale;
  return Fp8Recipe{.scale = fp8_recipe == "mxfp8"       ? Scale::Mx
                            : fp8_recipe == "blockwise" ? Scale::Block
                                                        : Scale::Tensor,
                   .gradients = *fp8_format == "hybrid" ? Fp8Type::E5m2 : Fp8Type::E4m3};
}

void LoopOptions::saving_fields(OptionTable& v) {
  v("save_strategy", save_strategy, "when to save: never, every --save_steps, or after each epoch")
      .choices({"no", "steps", "epoch"});
  v("save_steps", save_steps, "updates between checkpoints; below 1: a share of the run").common().above(0);
  v("save_total_limit", save_total_limit, "how many checkpoints stay; the best one always does; -1: all")
      .common()
      .at_least(-1);
  v("save_only_model", save_only_model,
    "leave the optimizer's state out of checkpoints: they are smaller, and no run goes on from them");
  v("save_fallback_dir", save_fallback_dir,
    "where the last checkpoint goes when the run's folder takes none, as on a full disk");
  v("save_retry_seconds", save_retry_seconds, "for so long the last checkpoint is tried again then; 0: not at all")
      .at_least(0)
      .at_most(1e6);
  v("async_save", async_save,
    "training waits until a checkpoint is copied in memory, where there is room, and goes on while it is written");
  v("create_checkpoint_symlink", create_checkpoint_symlink, "make the links best and last in the run's folder");
  v("eval_strategy", eval_strategy, "when to evaluate: never, every --eval_steps, or after each epoch")
      .choices({"no", "steps", "epoch"})
      .shown_default("as saving, when there are rows for it");
  v("eval_steps", eval_steps, "updates between evaluations; below 1: a share of the run")
      .common()
      .above(0)
      .shown_default("--save_steps");
  v("eval_on_start", eval_on_start, "evaluate before the first update");
  v("metric_for_best_model", metric_for_best_model, "the value of an evaluation by which the best checkpoint is chosen")
      .shown_default("loss; with --predict_with_generate its --eval_metric");
  v("greater_is_better", greater_is_better, "whether a higher value of --metric_for_best_model is better")
      .shown_default("by its name");
  v("predict_with_generate", predict_with_generate,
    "evaluation also answers the rows: rouge, bleu and share of equal answers; see --max_new_tokens, --temperature");
  v("eval_metric", eval_metric,
    "what --predict_with_generate judges by: nlg is rouge-l, acc the share of equal answers")
      .choices({"nlg", "acc"});
  v("early_stop_interval", early_stop_interval, "evaluations without a better value that end the run").at_least(1);
  v("callbacks", callbacks, "further ways to end a run: early_stop, graceful_exit");
  v("logging_steps", logging_steps, "updates between log lines").common().at_least(1);
  v("logging_first_step", logging_first_step, "write a log line after the first update too");
  v("profile", profile,
    "trace three steps (the third to the fifth) into profile/ of the run's folder, for ui.perfetto.dev, and say which "
    "operators take the time");
}

double LoopOptions::run_seconds() const {
  if (!max_run_time) return 0;
  const auto seconds = duration_of(*max_run_time);
  require(seconds.has_value(), Fault::Usage, "--max_run_time ", *max_run_time,
          " is no time: give 3h30m, 90m, 45s, 23:50:00 or 1-12:00:00 (days-hours:minutes:seconds)");
  return *seconds;
}

void LoopOptions::check() const {
  run_seconds();
  for (const std::string& name : callbacks)
    require(name == "early_stop" || name == "graceful_exit", Fault::Usage, "--callbacks ", name,
            " is not available; possible: early_stop, graceful_exit (which is always on)");
  for (const double steps : {save_steps, eval_steps.value_or(1)})
    require(steps < 1 || steps == static_cast<double>(static_cast<int64_t>(steps)), Fault::Usage,
            "--save_steps and --eval_steps are whole numbers, or shares of the run below 1; ", steps, " is neither");
}

int64_t LoopOptions::accumulation(int64_t ranks) const {
  const int64_t rows = per_device_train_batch_size * ranks;
  return gradient_accumulation_steps.value_or(std::max<int64_t>(1, (16 + rows - 1) / rows));
}

std::string LoopOptions::best_metric() const {
  const char* const otherwise = !predict_with_generate ? "loss" : eval_metric == "acc" ? "acc" : "rouge-l";
  const std::string name = metric_for_best_model.value_or(otherwise);
  return name.rfind("eval_", 0) == 0 ? name : "eval_" + name;
}

bool LoopOptions::greater_metric_wins() const {
  return greater_is_better.value_or(best_metric().find("loss") == std::string::npos);
}

int64_t LoopOptions::patience() const {
  const bool asked = std::find(callbacks.begin(), callbacks.end(), "early_stop") != callbacks.end();
  return early_stop_interval.value_or(asked ? 3 : 0);
}

}  // namespace apus
