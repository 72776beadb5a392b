// SPDX-License-Identifier: Apache-2.0
#include "train/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "ops/ops.h"
#include "tensor/dither.h"
#include "train/options/optimizer_info.h"

namespace apus {

Optimizer::Optimizer(std::string kind, std::vector<ParamGroup> groups, Rounding rounding)
    : rounding_(rounding), kind_(std::move(kind)), groups_(std::move(groups)) {
  for (const ParamGroup& group : groups_)
    for (const NamedParam& param : group.params)
      slots_.push_back({.param = &param, .group = &group, .index = static_cast<int64_t>(slots_.size()), .state = {}});
}

at::Tensor Optimizer::f32_zeros(const Slot& slot) {
  const at::Tensor& p = slot.param->tensor;
  return at::zeros_like(p, p.options().dtype(at::kFloat).requires_grad(false));
}

bool Optimizer::keeps_master(const at::Tensor& param) const {
  return rounding_ == Rounding::Master && param.scalar_type() != at::kFloat;
}

void Optimizer::adamw(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u, const Decay& decay) const {
  at::Tensor master = keeps_master(param) ? slot.state.at("master") : at::Tensor();
  const ops::AdamwStep step{.lr = u.lr,
                            .beta1 = decay.beta1,
                            .beta2 = decay.beta2,
                            .eps = decay.eps,
                            .weight_decay = u.weight_decay,
                            .step = u.step,
                            .grad_scale = u.grad_scale,
                            .dither = dither_of(slot, u.step),
                            .stochastic = rounding_ == Rounding::Stochastic};
  moments_step(slot, param, grad, master, step);
}

void Optimizer::begin_moments(Slot& slot, at::IntArrayRef shape, bool eight_bits) {
  begin_moment(slot, "exp_avg", shape, eight_bits);
  begin_moment(slot, "exp_avg_sq", shape, eight_bits, at::kByte);
}

void Optimizer::begin_moment(Slot& slot, const std::string& name, at::IntArrayRef shape, bool eight_bits,
                             at::ScalarType code) {
  const auto options = slot.param->tensor.options().requires_grad(false);
  if (!eight_bits) {
    const bool whole = shape == slot.param->tensor.sizes();
    slot.state[name] = whole ? f32_zeros(slot) : at::zeros(shape, options.dtype(at::kFloat));
    return;
  }
  const int64_t n = c10::multiply_integers(shape), blocks = (n + ops::kMomentBlock - 1) / ops::kMomentBlock;
  slot.state[name] = at::zeros({n}, options.dtype(code));
  slot.state[name + "_scale"] = at::zeros({blocks}, options.dtype(at::kFloat));
}

void Optimizer::change_moment(Slot& slot, const std::string& name, const Update& u, int64_t place,
                              const std::function<void(at::Tensor&)>& change) {
  at::Tensor& kept = slot.state.at(name);
  const auto scale = slot.state.find(name + "_scale");
  if (scale == slot.state.end()) return change(kept);
  at::Tensor wide = ops::read_moment(kept, scale->second).view(slot.param->tensor.sizes());
  change(wide);
  ops::write_moment(kept, scale->second, wide.reshape({-1}), dither_of(slot, u.step) + place);
}

void Optimizer::moments_step(Slot& slot, at::Tensor& param, const at::Tensor& grad, at::Tensor& master,
                             const ops::AdamwStep& step) {
  const auto scale = slot.state.find("exp_avg_scale");
  if (scale == slot.state.end())
    return ops::adamw(param, grad, slot.state.at("exp_avg"), slot.state.at("exp_avg_sq"), master, step);
  ops::Moments8 moments{slot.state.at("exp_avg"), scale->second, slot.state.at("exp_avg_sq"),
                        slot.state.at("exp_avg_sq_scale")};
  ops::adamw_8bit(param, grad, moments, master, step);
}

int64_t Optimizer::dither_of(const Slot& slot, int64_t step) {
  return advanced(dither_start(slot.index, step), slot.param->first);
}

Optimizer::Slot& Optimizer::ready(size_t i) {
  Slot& slot = slots_[i];
  if (!slot.state.empty() || slot.param->elsewhere) return slot;
  at::NoGradGuard no_grad;
  init(slot);
  if (keeps_master(slot.param->tensor)) slot.state["master"] = slot.param->tensor.detach().to(at::kFloat);
  return slot;
}

void Optimizer::step(double lr_factor, double grad_scale) {
  begin_step();
  for (size_t i = 0; i < slots_.size(); ++i) update_one(i, lr_factor, grad_scale);
}

void Optimizer::update_one(size_t i, double lr_factor, double grad_scale) {
  at::NoGradGuard no_grad;
  const at::Tensor& grad = slots_[i].param->tensor.grad();
  if (!grad.defined()) return;
  Slot& slot = ready(i);
  ++slot.steps;
  if (grad.numel() == 0) return;  // a rank without a row of it
  update(slot, slot.param->tensor.detach(), grad,
         {slot.group->lr * lr_factor, slot.group->weight_decay, grad_scale, slot.steps});
}

void Optimizer::make_state() {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!slots_[i].resting) ready(i);
}

void Optimizer::rest(size_t i, bool resting) {
  Slot& slot = slots_[i];
  if (slot.resting == resting) return;
  slot.resting = resting;
  if (resting) slot.state.clear(), slot.steps = 0;
}

void Optimizer::change_in_f32(Slot& slot, at::Tensor param, const Update& u,
                              const std::function<void(at::Tensor&)>& change) const {
  if (param.scalar_type() == at::kFloat) return change(param);
  at::Tensor wide = keeps_master(param) ? slot.state.at("master") : param.to(at::kFloat);
  change(wide);
  if (rounding_ == Rounding::Stochastic)
    round_stochastic_(param, wide, dither_of(slot, u.step));
  else
    param.copy_(wide);
}

// A master copy goes on holding what is trained; where there is none, a copy is kept meanwhile.
void Optimizer::show_meant() {
  at::NoGradGuard no_grad;
  if (shows_meant_ || !optimizer_info(kind_).averages) return;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = ready(i);
    at::Tensor param = slot.param->tensor.detach();
    const bool master = keeps_master(param);
    if (!master) slot.state["trained"] = param.clone();
    param.copy_(meant(slot, master ? slot.state.at("master") : slot.state.at("trained").to(at::kFloat)));
  }
  shows_meant_ = true;
}

void Optimizer::show_trained() {
  at::NoGradGuard no_grad;
  if (!shows_meant_) return;
  for (Slot& slot : slots_) {
    at::Tensor param = slot.param->tensor.detach();
    param.copy_(slot.state.at(keeps_master(param) ? "master" : "trained"));
    slot.state.erase("trained");
  }
  shows_meant_ = false;
}

void Optimizer::zero_grad() {
  for (const Slot& slot : slots_) slot.param->tensor.mutable_grad().reset();
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> all;
  for (const Slot& slot : slots_)
    if (const at::Tensor& grad = slot.param->tensor.grad(); grad.defined() && grad.numel() > 0) all.push_back(grad);
  return all;
}

std::map<std::string, at::Tensor> Optimizer::state() {
  std::map<std::string, at::Tensor> all;
  for (size_t i = 0; i < slots_.size(); ++i)
    for (const auto& [what, tensor] : slots_[i].resting ? slots_[i].state : ready(i).state)
      all[slots_[i].param->name + "/" + what] = tensor;
  return all;
}

std::map<std::string, int64_t> Optimizer::steps_of() const {
  std::map<std::string, int64_t> fewer;
  for (const Slot& slot : slots_)
    if (slot.steps != steps_) fewer[slot.param->name] = slot.steps;
  return fewer;
}

void Optimizer::load(const std::map<std::string, at::Tensor>& saved, int64_t steps,
                     const std::map<std::string, int64_t>& steps_of) {
  at::NoGradGuard no_grad;
  std::vector<std::string> wrong;
  const auto mine = state();
  for (const auto& [name, tensor] : mine) {
    const auto found = saved.find(name);
    if (found == saved.end())
      wrong.push_back(name + " is not in the checkpoint");
    else if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type())
      wrong.push_back(apus::str(name, " is ", found->second.sizes(), " ", found->second.scalar_type(), " there and ",
                                tensor.sizes(), " ", tensor.scalar_type(), " here"));
  }
  for (const auto& [name, tensor] : saved)
    if (!mine.count(name)) wrong.push_back(name + " is only in the checkpoint");
  if (wrong.size() > 8) wrong.resize(8), wrong.push_back("...");
  require(
      wrong.empty(), Fault::Usage,
      "the optimizer state of the checkpoint does not fit this run (optimizer, tuner, dtype or trainable parameters ",
      "were changed?): ", join(wrong, "; "), ". Keep the flags of the first run, or give --resume_only_model true");
  for (const auto& [name, tensor] : mine) at::Tensor(tensor).copy_(saved.at(name));
  steps_ = steps;
  for (Slot& slot : slots_) {
    const auto own = steps_of.find(slot.param->name);
    slot.steps = own == steps_of.end() ? steps : own->second;
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, std::vector<ParamGroup> groups) {
  const std::string name = optimizer_named(spec.kind);
  require(!name.empty(), Fault::Usage, "--optim ", spec.kind, " is not available; possible: ", join(optimizer_names()));
  const MakeOptimizer* make = Registry<MakeOptimizer>::of().find(name);
  require(make, Fault::Bug, "the optimizer ", name, " is described and not there");
  return (*make)(spec, std::move(groups));
}

}  // namespace apus
