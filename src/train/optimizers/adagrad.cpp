// SPDX-License-Identifier: Apache-2.0
// Adagrad, as torch.optim.Adagrad: weight decay is added to the gradient.
#include <ATen/TensorOperators.h>

#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

class Adagrad final : public Optimizer {
 public:
  Adagrad(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("adagrad", std::move(groups), spec.rounding) {
    OptimArguments a("adagrad", spec.arguments);
    lr_decay_ = a.number("lr_decay", 0), first_ = a.number("initial_accumulator_value", 0),
    eps_ = a.number("eps", 1e-10);
    a.done();
  }

 private:
  void init(Slot& slot) const override { slot.state["sum"] = f32_zeros(slot).add_(first_); }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      if (u.weight_decay != 0) g.add_(p, u.weight_decay);
      const at::Tensor& sum = slot.state.at("sum").addcmul_(g, g, 1);
      p.addcdiv_(g, sum.sqrt().add_(eps_), -u.lr / (1 + static_cast<double>(u.step - 1) * lr_decay_));
    });
  }
  double lr_decay_ = 0, first_ = 0, eps_ = 0;
};

const RegisterOptimizer<Adagrad> adagrad("adagrad");

}  // namespace
}  // namespace apus
