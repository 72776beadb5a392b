// SPDX-License-Identifier: Apache-2.0
// Schedule-free AdamW, RAdam and SGD: gradients are taken at y, between a fast sequence z and x, the average of z over
// the run; x is what is evaluated and saved. The parameter holds y, and x = y + (1 - 1/beta1)(z - y) is made from it.
// The average weighs an update by its highest learning rate so far, so warm-up counts little.
#include <ATen/TensorOperators.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

class ScheduleFree : public Optimizer {
 protected:
  ScheduleFree(const char* kind, const OptimizerSpec& spec, std::vector<ParamGroup> groups, OptimArguments& a)
      : Optimizer(kind, std::move(groups), spec.rounding), beta1_(spec.beta1), beta2_(spec.beta2), eps_(spec.eps) {
    r_ = a.number("r", 0), power_ = a.number("weight_lr_power", 2);
  }
  void init(Slot& slot) const override {
    const at::Tensor& p = slot.param->tensor;
    slot.state["z"] = p.detach().to(at::kFloat).clone();
    slot.state["averaged"] = at::zeros({2}, at::TensorOptions(at::kDouble));  // sum of weights, highest learning rate
  }
  at::Tensor meant(const Slot& slot, const at::Tensor& trained) const override {
    return at::lerp(trained, slot.state.at("z"), 1 - 1 / beta1_);
  }
  // y and z go on by lr against `direction`, which is changed.
  void advance(Slot& slot, at::Tensor& y, at::Tensor& direction, double lr, const Update& u) const {
    at::Tensor &averaged = slot.state.at("averaged"), &z = slot.state.at("z");
    double* const sums = averaged.data_ptr<double>();
    sums[1] = std::max(lr, sums[1]);
    const double weight = std::pow(static_cast<double>(u.step), r_) * std::pow(sums[1], power_);
    sums[0] += weight;
    const double share = sums[0] > 0 ? weight / sums[0] : 0;
    if (u.weight_decay != 0) direction.add_(y, u.weight_decay);
    y.lerp_(z, share).add_(direction, lr * (beta1_ * (1 - share) - 1));
    z.sub_(direction, lr);
  }
  double beta1_, beta2_, eps_;

 private:
  double r_ = 0, power_ = 2;
};

class ScheduleFreeAdamW final : public ScheduleFree {
 public:
  ScheduleFreeAdamW(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : ScheduleFreeAdamW(spec, std::move(groups), OptimArguments("schedule_free_adamw", spec.arguments)) {}

 private:
  ScheduleFreeAdamW(const OptimizerSpec& spec, std::vector<ParamGroup> groups, OptimArguments a)
      : ScheduleFree("schedule_free_adamw", spec, std::move(groups), a) {
    a.done();
    require(beta1_ > 0, Fault::Usage, "--optim schedule_free_adamw needs --adam_beta1 above 0");
  }
  void init(Slot& slot) const override {
    ScheduleFree::init(slot);
    slot.state["exp_avg_sq"] = f32_zeros(slot);
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& y) {
      at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      const at::Tensor& square = slot.state.at("exp_avg_sq").mul_(beta2_).addcmul_(g, g, 1 - beta2_);
      g.div_(square.div(1 - std::pow(beta2_, static_cast<double>(u.step))).sqrt_().add_(eps_));
      advance(slot, y, g, u.lr, u);
    });
  }
};

// Until the second moment is known well enough nothing is learnt but that moment: no warm-up is needed.
class ScheduleFreeRadam final : public ScheduleFree {
 public:
  ScheduleFreeRadam(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : ScheduleFreeRadam(spec, std::move(groups), OptimArguments("schedule_free_radam", spec.arguments)) {}

 private:
  ScheduleFreeRadam(const OptimizerSpec& spec, std::vector<ParamGroup> groups, OptimArguments a)
      : ScheduleFree("schedule_free_radam", spec, std::move(groups), a) {
    a.done();
    require(beta1_ > 0 && beta2_ > 0.6, Fault::Usage,
            "--optim schedule_free_radam needs --adam_beta1 above 0 and --adam_beta2 above 0.6");
  }
  void init(Slot& slot) const override {
    ScheduleFree::init(slot);
    slot.state["exp_avg_sq"] = f32_zeros(slot);
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    const auto step = static_cast<double>(u.step);
    const double left = std::pow(beta2_, step), most = 2 / (1 - beta2_) - 1,
                 known = most - 2 * step * left / (1 - left);
    const bool enough = known > 4;
    const double rectified =
        enough ? std::sqrt((known - 4) * (known - 2) * most / ((most - 4) * (most - 2) * known)) : 0;
    change_in_f32(slot, param, u, [&](at::Tensor& y) {
      at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      const at::Tensor& square = slot.state.at("exp_avg_sq").mul_(beta2_).addcmul_(g, g, 1 - beta2_);
      if (enough) g.div_(square.div(1 - left).sqrt_().add_(eps_));
      advance(slot, y, g, u.lr * rectified, u);
    });
  }
};

class ScheduleFreeSgd final : public ScheduleFree {
 public:
  ScheduleFreeSgd(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : ScheduleFreeSgd(spec, std::move(groups), OptimArguments("schedule_free_sgd", spec.arguments)) {}

 private:
  ScheduleFreeSgd(const OptimizerSpec& spec, std::vector<ParamGroup> groups, OptimArguments a)
      : ScheduleFree("schedule_free_sgd", spec, std::move(groups), a) {
    beta1_ = a.number("momentum", 0.9);
    a.done();
    require(beta1_ > 0 && beta1_ < 1, Fault::Usage, "--optim schedule_free_sgd needs a momentum between 0 and 1");
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& y) {
      at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      advance(slot, y, g, u.lr, u);
    });
  }
};

const RegisterOptimizer<ScheduleFreeAdamW> free_adamw("schedule_free_adamw");
const RegisterOptimizer<ScheduleFreeRadam> free_radam("schedule_free_radam");
const RegisterOptimizer<ScheduleFreeSgd> free_sgd("schedule_free_sgd");

}  // namespace
}  // namespace apus
