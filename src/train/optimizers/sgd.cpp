// SPDX-License-Identifier: Apache-2.0
// SGD with optional momentum, as torch.optim.SGD: weight decay is added to the gradient.
#include <ATen/TensorOperators.h>

#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerSpec& spec, std::vector<ParamGroup> groups) : Optimizer("sgd", std::move(groups), spec.rounding) {
    OptimArguments a("sgd", spec.arguments);
    momentum_ = a.number("momentum", 0), dampening_ = a.number("dampening", 0), nesterov_ = a.flag("nesterov", false);
    a.done();
    require(!nesterov_ || (momentum_ > 0 && dampening_ == 0), Fault::Usage,
            "--optim_args: nesterov needs a momentum above 0 and no dampening");
  }

 private:
  void init(Slot& slot) const override {
    if (momentum_ > 0) slot.state["momentum_buffer"] = f32_zeros(slot);
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      at::Tensor d = grad.to(at::kFloat) * u.grad_scale;
      if (u.weight_decay != 0) d.add_(p, u.weight_decay);
      if (momentum_ > 0) {
        at::Tensor& buffer = slot.state.at("momentum_buffer");
        u.step == 1 ? buffer.copy_(d) : buffer.mul_(momentum_).add_(d, 1 - dampening_);
        d = nesterov_ ? d.add_(buffer, momentum_) : buffer;
      }
      p.add_(d, -u.lr);
    });
  }
  double momentum_ = 0, dampening_ = 0;
  bool nesterov_ = false;
};

const RegisterOptimizer<Sgd> sgd("sgd");

}  // namespace

}  // namespace apus
