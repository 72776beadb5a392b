// SPDX-License-Identifier: Apache-2.0
// Lion: a step of one size for every weight, in the direction of a momentum that the gradient was mixed into. The
// momentum is f32 or, a quarter as large, of 8 bits with a scale for each block.
#include <ATen/TensorOperators.h>
#include <ATen/ops/sign.h>

#include "ops/ops.h"
#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

template <bool kSmall>
class Lion final : public Optimizer {
 public:
  Lion(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer(kSmall ? "lion_8bit" : "lion", std::move(groups), spec.rounding),
        beta1_(spec.beta1),
        beta2_(spec.beta2) {
    OptimArguments(kind(), spec.arguments).done();
  }

 private:
  void init(Slot& slot) const override { begin_moment(slot, "exp_avg", slot.param->tensor.sizes(), kSmall); }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      change_moment(slot, "exp_avg", u, ops::kMeanDither, [&](at::Tensor& momentum) {
        const at::Tensor direction = (momentum * beta1_).add_(g, 1 - beta1_).sign_();
        p.mul_(1 - u.lr * u.weight_decay).add_(direction, -u.lr);
        momentum.mul_(beta2_).add_(g, 1 - beta2_);
      });
    });
  }
  double beta1_, beta2_;
};

const RegisterOptimizer<Lion<false>> lion("lion");
const RegisterOptimizer<Lion<true>> lion_8bit("lion_8bit");

}  // namespace
}  // namespace apus
