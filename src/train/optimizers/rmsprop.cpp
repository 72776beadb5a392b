// SPDX-License-Identifier: Apache-2.0
// RMSprop, as torch.optim.RMSprop: weight decay is added to the gradient.
#include <ATen/TensorOperators.h>

#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

class RmsProp final : public Optimizer {
 public:
  RmsProp(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("rmsprop", std::move(groups), spec.rounding) {
    OptimArguments a("rmsprop", spec.arguments);
    alpha_ = a.number("alpha", 0.99), eps_ = a.number("eps", 1e-8), momentum_ = a.number("momentum", 0);
    a.done();
  }

 private:
  void init(Slot& slot) const override {
    slot.state["square_avg"] = f32_zeros(slot);
    if (momentum_ > 0) slot.state["momentum_buffer"] = f32_zeros(slot);
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      if (u.weight_decay != 0) g.add_(p, u.weight_decay);
      at::Tensor d = slot.state.at("square_avg").mul_(alpha_).addcmul_(g, g, 1 - alpha_).sqrt().add_(eps_);
      d = g / d;
      if (momentum_ > 0) d = slot.state.at("momentum_buffer").mul_(momentum_).add_(d);
      p.add_(d, -u.lr);
    });
  }
  double alpha_ = 0, eps_ = 0, momentum_ = 0;
};

const RegisterOptimizer<RmsProp> rmsprop("rmsprop");

}  // namespace
}  // namespace apus
