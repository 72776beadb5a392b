// SPDX-License-Identifier: Apache-2.0
// One update of the weights: micro-batches, gradients over all ranks, clipping,
// and what happens when a number is not finite.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/random.h"
#include "device/agree.h"
#include "device/failure.h"
#include "nn/moe.h"
#include "nn/token_groups.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "parallel/gradient_sync.h"
#include "parallel/pipeline.h"
#include "parallel/wide_gradient.h"
#include "train/chosen_layers.h"
#include "train/idle_pass.h"
#include "train/not_finite.h"
#include "train/rank_allocator.h"
#include "train/rollout.h"
#include "train/trainer.h"

namespace apus {

double Trainer::summed(double value) const { return sum_over(p_.data_ranks, value); }

// Seeds are a function of (seed, step, micro-batch of the step over all ranks): a resumed run draws the same masks
// without any saved generator, and several ranks draw those of one.
void Trainer::prepare(Batch& batch, uint64_t micro, const std::shared_ptr<RouterLoss>& router, double share) const {
  const int64_t ranks = p_.data_ranks.size() / p_.row_sharers,
                rank = p_.reader.value_or(p_.data_ranks.rank() / p_.row_sharers);
  const uint64_t place = micro * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(rank);
  TrainingStep training;
  training.dropout_seed = std::max<uint64_t>(1, mix(o_.seed, static_cast<uint64_t>(step_), place));
  if (o_.loop.router_aux_loss_coef > 0 && p_.actors.policy.shape().experts > 0) {
    router->scale = o_.loop.router_aux_loss_coef * share;
    training.router = router;
  }
  training.capacity = {o_.loop.moe_expert_capacity_factor, o_.loop.moe_token_drop_policy == "position"};
  training.fp8 = o_.loop.fp8();
  if (o_.token_groups > 0)
    training.groups = std::make_shared<const TokenGroups>(
        token_groups(batch.step.length_q, o_.token_groups, batch.step.cu_q.device()));
  set_training(batch.step, std::move(training));
}

// Of the weights alone, once in an update: each micro-batch adds the share of it that it has in the sum of losses.
void Trainer::add_penalty(Loss& loss, double count) const {
  const at::Tensor penalty = p_.ranks ? p_.ranks->penalty() : at::Tensor();
  if (!penalty.defined() || count == 0) return;
  loss.sum = loss.sum + penalty * count;
  loss.metrics["orth_loss"] = {penalty.detach() * count, at::tensor(count)};
}

Trainer::Pass Trainer::forward_of(Batch& batch, uint64_t micro, double total) {
  Pass pass{.loss = {}, .input = {}, .router = std::make_shared<RouterLoss>()};
  pass.share = p_.algorithm.count(batch) / total * stages();
  prepare(batch, micro, pass.router, pass.share);
  pass.loss = loss_of(batch, o_.forward);
  add_penalty(pass.loss, p_.algorithm.count(batch));
  if (p_.pipeline) pass.input = p_.pipeline->take_input();
  pass.balance = pass.router->scale;
  const auto& tokens = training_of(batch.step).tokens;
  if (!tokens || !training_of(batch.step).router) return pass;
  if (gives_losses()) pass.router->sum_over(tokens->ranks());
  pass.router->scale *= static_cast<double>(tokens->ranks().size());  // each gives the gradient of its own tokens alone
  return pass;
}

// What it comes to is not read here: the device has work to do first.
void Trainer::backward_of(Batch& batch, Pass pass, double total, bool only_measured, LossParts& parts) {
  Loss& part = pass.loss;
  // The factor as the first gradient: the gradient of a product of a scalar and a number is made in f64. What would
  // update weights on the way does not begin when the loss is not finite.
  if (part.sum.requires_grad() && (!in_backward_ || std::isfinite(part.sum.item<double>())))
    part.sum.backward(at::full_like(part.sum, 1 / total));
  if (!training_of(batch.step).router) {
    parts.add(part.sum, total);
  } else {
    const at::Tensor value = pass.router->value();
    parts.add(part.sum, total, value, pass.balance);
    part.metrics["aux_loss"] = {value * pass.share, at::tensor(pass.share)};
  }
  if (!only_measured) metrics_.add(part.metrics);
  batch.step.turns.clear();
}

// What a rank runs that has no batch while others have: one that it had, or, in a first step, one of another rank.
const Batch& Trainer::spare() {
  if (spare_) return *spare_;
  const std::optional<Samples> any = p_.train.any();
  spare_ = (any ? collate(*any) : idle_batch()).to(p_.device);
  return *spare_;
}

// It makes the passes of the others, and adds nothing.
void Trainer::keep_step(const Batch* like) {
  if (like) spare_ = *like;
  Batch batch = spare();
  prepare(batch, 0, std::make_shared<RouterLoss>(), 0);
  const bool trains = at::GradMode::is_enabled();
  if (!trains) batch.step.training = nullptr;
  const Loss none = loss_of_all(batch, trains ? o_.forward : Forward{});
  if (none.sum.requires_grad()) none.sum.backward(at::zeros_like(none.sum));
}

double Trainer::backward(Update& batches, double total, bool only_measured) {
  if (p_.pipeline) return pipelined(batches, total);
  GradientSync* const sync = p_.gradients;
  LossParts parts;
  size_t rounds = batches.size();
  if (sync && sync->in_step()) rounds = static_cast<size_t>(largest_of(p_.data_ranks, static_cast<double>(rounds)));
  for (size_t i = 0; i < std::max<size_t>(1, rounds); ++i) {
    const bool last = i + 1 >= rounds;
    const Stopwatch own;
    if (sync && (i < batches.size() || sync->in_step())) sync->begin(last);
    if (i < batches.size()) {
      batches[i] = batches[i].to(p_.device);
      backward_of(batches[i], forward_of(batches[i], i, total), total, only_measured, parts);
    } else if (sync && sync->passes_in_step()) {
      keep_step(batches.empty() ? nullptr : &batches.back());
    }
    own_seconds_ += own.seconds();
    if (sync) sync->finish(last);
    if (!sync && !last && o_.wide_gradients)
      for (const ParamGroup& group : p_.optimizer.groups())
        for (const NamedParam& p : group.params) widen_gradient(p.tensor);
  }
  const Stopwatch reading;  // which waits for the device's work, that was only asked for above
  const double loss = parts.value();
  own_seconds_ += reading.seconds();
  if (sync) sync->rest();
  if (sync && sync->passes_in_step() && !batches.empty()) spare_ = batches.front();
  return summed(loss);
}

// Before the first step, below what comes and goes: among activations it would leave holes in the memory.
void Trainer::make_optimizer_state() {
  try {
    p_.optimizer.make_state();
  } catch (const c10::Error& error) {
    throw explained(error, p_.device,
                    "It was for the optimizer's state, whose size is that of the trained weights and not of the batch: "
                    "--tuner_type lora, --optim adamw_8bit or adafactor, --master_weights stochastic and a bf16 "
                    "--torch_dtype need less");
  }
}

// What the tensor library says when memory is exhausted, in our words.
void Trainer::explained_memory(const std::function<void()>& work) const {
  try {
    work();
  } catch (const c10::Error& error) {
    throw explained(
        error, p_.device,
        "Lower --per_device_train_batch_size (--gradient_accumulation_steps keeps the global batch) or "
        "--max_length; --gradient_checkpointing true, --tuner_type lora and a bf16 --torch_dtype need less too");
  }
}

Trainer::StepResult Trainer::step(Update batches) {
  if (p_.begins_step) p_.begins_step(step_ + 1);
  if (p_.layers) p_.layers->before_step(step_);
  StepResult result;
  const Stopwatch watch;
  explained_memory([&] {
    if (p_.algorithm.looks_at_updates()) {
      const at::NoGradGuard no_grad;
      const std::shared_ptr<void> alone = p_.alone ? p_.alone() : nullptr;
      p_.algorithm.look_at(p_.actors, batches);
    }
    result = compute(batches);
  });
  stepping_ += watch.seconds();
  return result;
}

// By what gradients are scaled when weights are updated as they come. Absent: the norm is not finite.
std::optional<double> Trainer::scale_in_backward(Update& batches, double total) {
  const double most = o_.loop.max_grad_norm;
  if (most <= 0) return 1;
  double norm = last_norm_;  // 0 before the first step, which is not clipped
  if (*o_.loop.clip_in_backward == "second_pass") {
    in_backward_->measure();
    backward(batches, total, /*only_measured=*/true);
    norm = in_backward_->end().norm;
  }
  if (!std::isfinite(norm)) return std::nullopt;
  return std::min(1.0, most / (norm + 1e-6));
}

double Trainer::gradient_norm() const {
  const double squares = ops::sum_of_squares(p_.optimizer.gradients());
  return std::sqrt(p_.gradients ? p_.gradients->of_all(squares) : squares);
}

Trainer::StepResult Trainer::compute(Update& batches) {
  double count = 0;
  for (const Batch& b : batches) count += p_.algorithm.count(b), tokens_seen_ += b.id_T.numel();
  const double total = summed(count);
  // A stage may have nothing to train.
  last_lr_ = p_.optimizer.groups().empty() ? p_.base_lr * schedule_(step_) : p_.optimizer.lr(schedule_(step_));
  StepResult out;
  if (total <= 0) {
    log_warning("step ", step_ + 1, " holds no token to learn from; nothing is updated");
    return out;
  }
  if (in_backward_) {
    const auto scale = scale_in_backward(batches, total);
    if (!scale) {
      left_out(str(find_not_finite(batches), "; this update is left out"));
      return out;
    }
    in_backward_->begin(schedule_(step_), *scale);
  }
  out.loss = backward(batches, total);
  const UpdateInBackward::Outcome done = in_backward_ ? in_backward_->end() : UpdateInBackward::Outcome();
  out.grad_norm = in_backward_ ? done.norm : gradient_norm();
  out.updated = std::isfinite(out.loss) && std::isfinite(out.grad_norm);
  if (out.updated) {
    const double scale = o_.loop.max_grad_norm > 0 ? std::min(1.0, o_.loop.max_grad_norm / (out.grad_norm + 1e-6)) : 1;
    if (o_.forward.logits) p_.optimizer.hear_largest_logit(largest_of(p_.data_ranks, o_.forward.logits->take()));
    if (!in_backward_) p_.optimizer.step(schedule_(step_), scale);
    if (p_.ranks) p_.ranks->updated(step_ + 1, scale);
    if (p_.gradients) p_.gradients->updated();
    if (p_.actors.rollout) p_.actors.rollout->weights_changed();
    bad_in_a_row_ = 0;
  } else if (done.not_finite.empty()) {
    left_out(str(first_known(find_not_finite(batches)), "; this update is left out"));
  } else {
    left_out(str("the gradient of ", done.not_finite, " is not finite, though the loss is; ", done.updated,
                 " parameters whose gradients had come before it are updated, the others left as they are"));
  }
  p_.optimizer.zero_grad();
  return out;
}

void Trainer::left_out(const std::string& what) {
  ++bad_in_a_row_, ++result_.bad_steps;
  log_warning("step ", step_ + 1, ": ", what, " (", bad_in_a_row_, " in a row, ", o_.loop.max_bad_steps,
              " end the run)");
  require(bad_in_a_row_ < o_.loop.max_bad_steps, Fault::Model, "training diverged: ", bad_in_a_row_,
          " updates in a row had no finite gradient; ", what,
          ". Last good checkpoint: ", result_.last_checkpoint ? result_.last_checkpoint->string() : "none",
          ". Lower --learning_rate, add --warmup_ratio, or train in float32");
}

// The first place, in the order of computation, whose values are not finite.
std::string Trainer::find_not_finite(Update& batches) {
  if (p_.pipeline) return find_not_finite_in_stages(batches);
  if (const std::string weight = weight_not_finite(p_.actors.policy); !weight.empty()) return weight;
  std::string bad_gradient;
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < batches.size(); ++i) {
    std::string first;
    Forward forward = o_.forward;
    forward.watch = [&](const std::string& part, const at::Tensor& x) {
      if (first.empty() && !all_finite(x)) first = part;
    };
    const Loss loss = p_.algorithm.loss(p_.actors, batches[i], forward);
    if (!first.empty())
      return str("the output of ", first, " is not finite (micro-batch ", i + 1, " of ", batches.size(), ")");
    if (!all_finite(loss.sum))
      return str("the loss is not finite, though the final hidden states are (micro-batch ", i + 1, " of ",
                 batches.size(), ")");
  }
  // The last one in the order of computation is where the backward pass met it first.
  for (const ParamGroup& group : p_.optimizer.groups())
    for (const NamedParam& p : group.params)
      if (p.tensor.grad().defined() && !all_finite(p.tensor.grad())) bad_gradient = p.name;
  return bad_gradient.empty() ? "the sum of the gradients is too large for its type"
                              : "the gradient of " + bad_gradient + " is not finite, though the forward pass is";
}

// Sums carry one rank's values to all: the rank whose own forward pass is not finite knows the place best.
std::string Trainer::first_known(const std::string& mine) const {
  const std::vector<std::string> all = gather_text(mine, p_.data_ranks);
  for (size_t r = 0; r < all.size() && all.size() > 1; ++r)
    if (all[r].find("micro-batch") != std::string::npos) return str(all[r], " on rank ", r);
  return all[0];
}

}  // namespace apus
