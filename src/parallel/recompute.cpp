// SPDX-License-Identifier: Apache-2.0
#include "parallel/recompute.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "nn/capsule.h"
#include "nn/training_step.h"

namespace apus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A layer of one forward pass, as both of its runs need it.
struct Layer {
  std::shared_ptr<LayerRunner> runner;
  const Model* model;
  int64_t index;
  Step step;
  Memo memo;

  at::Tensor run(const at::Tensor& x_TD, Memo& with) const {
    Step own = step;
    TrainingStep training = training_of(step);
    training.memo = &with;
    set_training(own, std::move(training));
    return runner->layer(*model, index, x_TD, own);
  }
};

struct LayerAgain : torch::autograd::Function<LayerAgain> {
  // `anchor` only needs a gradient: it puts the layer on the tape when x does
  // not (frozen embeddings below trained layers).
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& anchor,
                            const std::shared_ptr<Layer>& layer) {
    ctx->save_for_backward({x_TD});
    ctx->saved_data["layer"] = encapsulated(layer);
    at::NoGradGuard no_grad;
    const at::Tensor y_TD = layer->run(x_TD, layer->memo);
    return y_TD.is_same(x_TD) ? y_TD.clone() : y_TD;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Layer& layer = *held<std::shared_ptr<Layer>>(ctx->saved_data["layer"]);
    // The memo leaves the tape: its results serve once. Another backward pass over the same tape computes them all.
    Memo memo = std::exchange(layer.memo, Memo(Memo::kNothing));
    memo.begin_second_run();
    const bool wants_dx = ctx->needs_input_grad(0);
    const at::Tensor x_TD = ctx->get_saved_variables()[0].detach().requires_grad_(wants_dx);
    at::AutoGradMode grad(true);
    const at::Tensor y_TD = layer.run(x_TD, memo);
    // In the layer or below it.
    const bool nothing_trained = !y_TD.requires_grad();
    if (nothing_trained) return variable_list(3);
    torch::autograd::backward({y_TD}, {grads[0]});
    return {wants_dx ? x_TD.grad() : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor RecomputeRunner::layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) {
  const auto kinds = remembered_(i);
  if (!kinds || !at::GradMode::is_enabled()) return inner_->layer(model, i, x_TD, s);
  const at::Tensor anchor = at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_();
  return LayerAgain::apply(x_TD, anchor, std::make_shared<Layer>(Layer{inner_, &model, i, s, Memo(*kinds)}));
}

}  // namespace apus
