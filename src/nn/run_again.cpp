// SPDX-License-Identifier: Apache-2.0
#include "nn/run_again.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "nn/capsule.h"
#include "nn/training_step.h"

namespace apus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A part in one forward pass, as both of its runs need it.
struct RunTwice {
  RunPart part;
  Step step;
  Memo memo;

  at::Tensor run(const at::Tensor& x_TD, Memo& with) const {
    Step own = step;
    TrainingStep training = training_of(step);
    training.memo = &with;
    set_training(own, std::move(training));
    return part(x_TD, own);
  }
};

struct PartAgain : torch::autograd::Function<PartAgain> {
  // `anchor` only needs a gradient: it puts the part on the tape when x does
  // not (frozen embeddings below trained layers).
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& anchor,
                            const std::shared_ptr<RunTwice>& twice) {
    ctx->save_for_backward({x_TD});
    ctx->saved_data["part"] = encapsulated(twice);
    at::NoGradGuard no_grad;
    const at::Tensor y_TD = twice->run(x_TD, twice->memo);
    return y_TD.is_same(x_TD) ? y_TD.clone() : y_TD;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    RunTwice& twice = *held<std::shared_ptr<RunTwice>>(ctx->saved_data["part"]);
    // The memo leaves the tape: its results serve once. Another backward pass over the same tape computes them all.
    Memo memo = std::exchange(twice.memo, Memo(Memo::kNothing));
    memo.begin_second_run();
    const bool wants_dx = ctx->needs_input_grad(0);
    const at::Tensor x_TD = ctx->get_saved_variables()[0].detach().requires_grad_(wants_dx);
    at::AutoGradMode grad(true);
    const at::Tensor y_TD = twice.run(x_TD, memo);
    // In the part or below it.
    const bool nothing_trained = !y_TD.requires_grad();
    if (nothing_trained) return variable_list(3);
    torch::autograd::backward({y_TD}, {grads[0]});
    return {wants_dx ? x_TD.grad() : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor run_again(const at::Tensor& x_TD, const Step& s, Memo::Kinds remembered, RunPart part) {
  const at::Tensor anchor = at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_();
  return PartAgain::apply(x_TD, anchor, std::make_shared<RunTwice>(RunTwice{std::move(part), s, Memo(remembered)}));
}

}  // namespace apus
