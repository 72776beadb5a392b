// SPDX-License-Identifier: Apache-2.0
// The passes of an update where this rank is a stage of a pipeline. Only the last piece of the layers has losses; it
// counts each so many times as there are stages, as all of them count its tokens. Where stages share out experts with
// those of other rows, all make as many passes: those behind a rank's own batches add nothing.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <utility>
#include <vector>

#include "device/agree.h"
#include "nn/moe.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "parallel/gradient_sync.h"
#include "parallel/pipeline.h"
#include "parallel/placement/stages.h"
#include "train/not_finite.h"
#include "train/trainer.h"

namespace apus {

bool Trainer::gives_losses() const { return !p_.pipeline || p_.pipeline->last(); }
double Trainer::stages() const { return p_.pipeline ? static_cast<double>(p_.pipeline->stages()) : 1; }

// A piece in front of the last one makes the passes that the algorithm makes there: the reference's, then the policy's.
Loss Trainer::loss_of(Batch& batch, const Forward& forward) {
  if (gives_losses()) {
    Loss loss = p_.algorithm.loss(p_.actors, batch, forward);
    if (p_.pipeline) loss.sum = loss.sum * stages();
    return loss;
  }
  if (p_.actors.reference) p_.actors.reference->head_factors(batch);
  const at::Tensor given_TD = forward.hidden(p_.actors.policy, batch);
  return {.sum = at::GradMode::is_enabled() ? given_TD : at::zeros({}), .metrics = {}};
}

// Through all pieces of this stage.
Loss Trainer::loss_of_all(Batch& batch, const Forward& forward) {
  Loss loss;
  for (int piece = 0; piece < (p_.pipeline ? p_.pipeline->pieces() : 1); ++piece) {
    if (p_.pipeline) p_.pipeline->take(piece);
    loss = loss_of(batch, forward);
  }
  return loss;
}

double Trainer::pipelined(Update& batches, double total) {
  Pipeline& pipeline = *p_.pipeline;
  GradientSync* const sync = p_.gradients;
  const size_t own = batches.size(), pieces = static_cast<size_t>(pipeline.pieces());
  if (sync && sync->passes_in_step()) {
    if (own > 0) spare_ = batches.front();
    const auto most = static_cast<size_t>(largest_of(p_.data_ranks, static_cast<double>(own)));
    while (batches.size() < most) batches.push_back(spare());
  }
  // Of each piece of each micro-batch, whose step is its own.
  struct UnderWay {
    Batch batch;
    Pass pass;
  };
  std::vector<std::optional<UnderWay>> passes(batches.size() * pieces);
  LossParts parts;
  size_t left = passes.size();
  for (const auto [i, backward, piece] :
       one_forward_one_backward(pipeline.stage(), pipeline.stages(), std::ssize(batches), pipeline.pieces())) {
    const auto n = static_cast<size_t>(i);
    std::optional<UnderWay>& here = passes[n * pieces + static_cast<size_t>(piece)];
    pipeline.take(piece);
    if (!backward) {
      batches[n] = batches[n].to(p_.device);
      here.emplace(UnderWay{batches[n], {}});
      here->pass = forward_of(here->batch, n, total);
      if (n >= own) here->pass.router->scale = 0;
      continue;
    }
    const bool last = --left == 0;
    auto [batch, pass] = *std::exchange(here, std::nullopt);
    RouterLoss* const router = training_of(batch.step).router ? pass.router.get() : nullptr;
    const at::Tensor input = pass.input;
    if (sync) sync->begin(last);
    if (pipeline.last() && n >= own) {
      if (pass.loss.sum.requires_grad()) pass.loss.sum.backward(at::zeros_like(pass.loss.sum));
    } else if (pipeline.last()) {
      backward_of(batch, std::move(pass), total, false, parts);
    } else {
      const at::Tensor gradient = pipeline.gradient_of(pass.loss.sum, router);
      if (gradient.defined()) pass.loss.sum.backward(gradient);
    }
    if (input.defined()) pipeline.send_gradient_of(input, router);
    if (sync) sync->finish(last);
  }
  if (sync && batches.empty()) sync->finish();
  pipeline.settle();
  return summed(parts.value());
}

// All stages make all passes, whatever they find.
std::string Trainer::find_not_finite_in_stages(Update& batches) {
  at::NoGradGuard no_grad;
  const std::string weight = weight_not_finite(p_.actors.policy);
  std::string output, gradient;
  for (size_t i = 0; i < batches.size(); ++i) {
    const std::string where = str(" (micro-batch ", i + 1, " of ", batches.size(), ")");
    Forward forward = o_.forward;
    forward.watch = [&](const std::string& part, const at::Tensor& x) {
      if (output.empty() && !all_finite(x)) output = str("the output of ", part, " is not finite", where);
    };
    prepare(batches[i], i, std::make_shared<RouterLoss>(), 0);
    const Loss loss = loss_of_all(batches[i], forward);
    if (output.empty() && !all_finite(loss.sum))
      output = str("the loss is not finite, though the final hidden states are", where);
  }
  p_.pipeline->settle();
  for (const ParamGroup& group : p_.optimizer.groups())
    for (const NamedParam& p : group.params)
      if (p.tensor.grad().defined() && !all_finite(p.tensor.grad())) gradient = p.name;
  if (!weight.empty()) return weight;
  if (!output.empty()) return output;
  return gradient.empty() ? "the sum of the gradients is too large for its type"
                          : "the gradient of " + gradient + " is not finite, though the forward pass is";
}

}  // namespace apus
