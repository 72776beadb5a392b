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

// What a part is given besides its input, and what it lends to later ones, in one order.
variable_list tensors_of(const Beside& beside) {
  variable_list all;
  for (const at::Tensor& each : {beside.of_layer_TLP, beside.picture_RD})
    if (each.defined()) all.push_back(each);
  for (const auto& [layer, lent] : beside.lent) all.insert(all.end(), lent.begin(), lent.end());
  return all;
}
Beside with_tensors(Beside beside, at::TensorList tensors) {
  size_t i = 0;
  for (at::Tensor* each : {&beside.of_layer_TLP, &beside.picture_RD})
    if (each->defined()) *each = tensors[i++];
  for (auto& [layer, lent] : beside.lent)
    for (at::Tensor& each : lent) each = tensors[i++];
  return beside;
}

// A part in one forward pass, as both of its runs need it.
struct RunTwice {
  RunPart part;
  Step step;
  Memo memo;
  // Layers of the part that lend, and how many tensors each; known behind its first run.
  std::vector<std::pair<int64_t, size_t>> lenders = {};

  // -> its result, and what the lenders lend
  variable_list run(const at::Tensor& x_TD, at::TensorList given, Memo& with) {
    Step own = step;
    if (step.beside) own.beside = std::make_shared<Beside>(with_tensors(*step.beside, given));
    TrainingStep training = training_of(step);
    training.memo = &with;
    set_training(own, std::move(training));
    variable_list results{part(x_TD, own)};
    lenders.clear();
    if (own.beside)
      for (const auto& [layer, lent] : own.beside->lent) {
        if (step.beside->lent.count(layer)) continue;
        lenders.emplace_back(layer, lent.size()), results.insert(results.end(), lent.begin(), lent.end());
      }
    return results;
  }
};

struct PartAgain : torch::autograd::Function<PartAgain> {
  // `anchor` only needs a gradient: it puts the part on the tape when x does
  // not (frozen embeddings below trained layers).
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& anchor,
                               at::TensorList given, const std::shared_ptr<RunTwice>& twice) {
    variable_list inputs{x_TD};
    inputs.insert(inputs.end(), given.begin(), given.end());
    ctx->save_for_backward(inputs);
    ctx->saved_data["part"] = encapsulated(twice);
    at::NoGradGuard no_grad;
    variable_list results = twice->run(x_TD, given, twice->memo);
    if (results[0].is_same(x_TD)) results[0] = results[0].clone();
    return results;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    RunTwice& twice = *held<std::shared_ptr<RunTwice>>(ctx->saved_data["part"]);
    // The memo leaves the tape: its results serve once. Another backward pass over the same tape computes them all.
    Memo memo = std::exchange(twice.memo, Memo(Memo::kNothing));
    memo.begin_second_run();
    variable_list inputs = ctx->get_saved_variables();
    for (size_t i = 0; i < inputs.size(); ++i)  // the anchor is the second
      inputs[i] = inputs[i].detach().requires_grad_(ctx->needs_input_grad(i == 0 ? 0 : i + 1));
    at::AutoGradMode grad(true);
    const variable_list all = twice.run(inputs[0], at::TensorList(inputs).slice(1), memo);
    variable_list results, of_results;
    for (size_t i = 0; i < all.size(); ++i)  // others: nothing is trained in the part or below it
      if (all[i].requires_grad()) results.push_back(all[i]), of_results.push_back(grads[i]);
    variable_list into(inputs.size() + 2);
    if (results.empty()) return into;
    torch::autograd::backward(results, of_results);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].requires_grad()) into[i == 0 ? 0 : i + 1] = inputs[i].grad();
    return into;
  }
};

}  // namespace

at::Tensor run_again(const at::Tensor& x_TD, const Step& s, Memo::Kinds remembered, RunPart part) {
  const at::Tensor anchor = at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_();
  const auto twice = std::make_shared<RunTwice>(RunTwice{std::move(part), s, Memo(remembered)});
  // Of the step as it is before: what later parts leave there is none of this one's.
  if (s.beside) twice->step.beside = std::make_shared<Beside>(*s.beside);
  const variable_list given = s.beside ? tensors_of(*s.beside) : variable_list();
  const variable_list results = PartAgain::apply(x_TD, anchor, at::TensorList(given), twice);
  auto next = results.begin() + 1;
  for (const auto& [layer, count] : twice->lenders) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    s.beside->lent[layer] = {std::exchange(next, end), end};
  }
  return results[0];
}

}  // namespace apus
