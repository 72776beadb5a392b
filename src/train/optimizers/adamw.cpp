// SPDX-License-Identifier: Apache-2.0
// AdamW: moments in f32 or, a quarter as large, in 8 bits with a scale for each block.
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "ops/ops.h"
#include "train/optimizer.h"

namespace apus {
namespace {

template <bool kSmall>
class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer(kSmall ? "adamw_8bit" : "adamw", std::move(groups), spec.rounding),
        beta1_(spec.beta1),
        beta2_(spec.beta2),
        eps_(spec.eps) {
    for (const auto& [key, value] : spec.arguments)
      fail(Fault::Usage, "--optim_args: AdamW has no '", key,
           "'; its numbers are --adam_beta1, --adam_beta2, --adam_epsilon");
  }

 private:
  void init(Slot& slot) const override {
    const at::Tensor& p = slot.param->tensor;
    if (!kSmall) {
      slot.state["exp_avg"] = f32_zeros(slot);
      slot.state["exp_avg_sq"] = f32_zeros(slot);
      return;
    }
    const int64_t n = p.numel(), blocks = (n + ops::kMomentBlock - 1) / ops::kMomentBlock;
    const auto options = p.options().requires_grad(false);
    slot.state["exp_avg"] = at::zeros({n}, options.dtype(at::kChar));
    slot.state["exp_avg_sq"] = at::zeros({n}, options.dtype(at::kByte));
    slot.state["exp_avg_scale"] = at::zeros({blocks}, options.dtype(at::kFloat));
    slot.state["exp_avg_sq_scale"] = at::zeros({blocks}, options.dtype(at::kFloat));
  }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    adamw(slot, param, grad, u, {beta1_, beta2_, eps_});
  }

  double beta1_, beta2_, eps_;
};

const RegisterOptimizer<AdamW<false>> adamw("adamw");
const RegisterOptimizer<AdamW<true>> adamw_8bit("adamw_8bit");

}  // namespace

}  // namespace apus
