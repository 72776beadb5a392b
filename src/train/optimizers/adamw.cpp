// SPDX-License-Identifier: Apache-2.0
// AdamW: moments in f32 or, a quarter as large, in 8 bits with a scale for each block.
#include "base/error.h"
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
  void init(Slot& slot) const override { begin_moments(slot, slot.param->tensor.sizes(), kSmall); }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    adamw(slot, param, grad, u, {beta1_, beta2_, eps_});
  }

  double beta1_, beta2_, eps_;
};

const RegisterOptimizer<AdamW<false>> adamw("adamw");
const RegisterOptimizer<AdamW<true>> adamw_8bit("adamw_8bit");

}  // namespace

}  // namespace apus
