// SPDX-License-Identifier: Apache-2.0
// StableAdamW: AdamW without a bound on gradients, since a parameter whose gradient is larger than its past takes a
// smaller step: by the root of the mean of g^2 / v.
#include <ATen/TensorOperators.h>

#include <cmath>

#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

// A decay that needs no correction: the first updates weigh alike.
double corrected(double beta, double step) {
  const double power = std::pow(beta, step);
  return (power - beta) / (power - 1);
}

class StableAdamW final : public Optimizer {
 public:
  StableAdamW(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("stable_adamw", std::move(groups), spec.rounding),
        beta1_(spec.beta1),
        beta2_(spec.beta2),
        eps_(spec.eps) {
    OptimArguments("stable_adamw", spec.arguments).done();
  }

 private:
  void init(Slot& slot) const override {
    for (const char* name : {"exp_avg", "exp_avg_sq"}) slot.state[name] = f32_zeros(slot);
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const auto step = static_cast<double>(u.step);
      const double beta1 = corrected(beta1_, step), beta2 = corrected(beta2_, step);
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      const at::Tensor& mean = slot.state.at("exp_avg").mul_(beta1).add_(g, 1 - beta1);
      const at::Tensor& square = slot.state.at("exp_avg_sq").mul_(beta2).addcmul_(g, g, 1 - beta2);
      const double news = std::sqrt(g.square().div_(square.clamp_min(eps_ * eps_)).mean().item<double>());
      const double lr = u.lr / std::max(1.0, news);
      p.mul_(1 - lr * u.weight_decay).addcdiv_(mean, square.sqrt().add_(eps_), -lr);
    });
  }
  double beta1_, beta2_, eps_;
};

const RegisterOptimizer<StableAdamW> stable_adamw("stable_adamw");

}  // namespace
}  // namespace apus
