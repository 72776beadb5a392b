// SPDX-License-Identifier: Apache-2.0
// AdEMAMix: AdamW whose step is the usual momentum and `alpha` times a second one that forgets slowly. Both alpha and
// the slow decay may rise over the first updates (t_alpha, t_beta3), as the paper has it. The three moments are f32 or,
// a quarter as large, of 8 bits with a scale for each block.
#include <ATen/TensorOperators.h>

#include <cmath>

#include "ops/ops.h"
#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

constexpr int64_t kSlowDither = 0x2aaaaaaa;  // between the parameter's and the mean's

template <bool kSmall>
class AdEMAMix final : public Optimizer {
 public:
  AdEMAMix(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer(kSmall ? "ademamix_8bit" : "ademamix", std::move(groups), spec.rounding),
        beta1_(spec.beta1),
        beta2_(spec.beta2),
        eps_(spec.eps) {
    OptimArguments a(kind(), spec.arguments);
    beta3_ = a.number("beta3", 0.9999), alpha_ = a.number("alpha", 5), t_alpha_ = a.number("t_alpha", 0),
    t_beta3_ = a.number("t_beta3", 0);
    a.done();
    require(beta1_ > 0 && beta3_ > 0 && beta3_ < 1 && alpha_ >= 0, Fault::Usage, "--optim ", kind(),
            ": --adam_beta1 and beta3 must be between 0 and 1, alpha 0 or more");
  }

 private:
  void init(Slot& slot) const override {
    begin_moments(slot, slot.param->tensor.sizes(), kSmall);
    begin_moment(slot, "exp_avg_slow", slot.param->tensor.sizes(), kSmall);
  }
  double alpha(double step) const { return t_alpha_ > 0 ? std::min(step * alpha_ / t_alpha_, alpha_) : alpha_; }
  double beta3(double step) const {
    if (t_beta3_ <= 0) return beta3_;
    const double fast = std::log(beta1_), slow = std::log(beta3_), part = step / t_beta3_;
    return std::min(std::exp(fast * slow / ((1 - part) * slow + part * fast)), beta3_);
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const auto step = static_cast<double>(u.step);
      const double beta3 = this->beta3(step);
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      at::Tensor d;
      change_moment(slot, "exp_avg", u, ops::kMeanDither, [&](at::Tensor& fast) {
        d = fast.mul_(beta1_).add_(g, 1 - beta1_) / (1 - std::pow(beta1_, step));
      });
      change_moment(slot, "exp_avg_slow", u, kSlowDither,
                    [&](at::Tensor& slow) { d.add_(slow.mul_(beta3).add_(g, 1 - beta3), alpha(step)); });
      change_moment(slot, "exp_avg_sq", u, ops::kSquareDither, [&](at::Tensor& square) {
        square.mul_(beta2_).addcmul_(g, g, 1 - beta2_);
        d.div_((square.sqrt().div_(std::sqrt(1 - std::pow(beta2_, step)))).add_(eps_));
      });
      p.mul_(1 - u.lr * u.weight_decay).add_(d, -u.lr);
    });
  }
  double beta1_, beta2_, eps_, beta3_ = 0, alpha_ = 0, t_alpha_ = 0, t_beta3_ = 0;
};

const RegisterOptimizer<AdEMAMix<false>> ademamix("ademamix");
const RegisterOptimizer<AdEMAMix<true>> ademamix_8bit("ademamix_8bit");

}  // namespace
}  // namespace apus
