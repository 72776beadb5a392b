// SPDX-License-Identifier: Apache-2.0
// Muon: the momentum of a matrix is made orthogonal by five Newton-Schulz steps before it is applied, scaled so that
// its size is that of an AdamW update (0.2 sqrt(max(rows, columns))). Embeddings, the head and vectors take AdamW.
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "train/gradient_space.h"
#include "train/optim_arguments.h"
#include "train/optimizer.h"
#include "train/orthogonal.h"

namespace apus {
namespace {

class Muon final : public Optimizer {
 public:
  Muon(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("muon", std::move(groups), spec.rounding), beta1_(spec.beta1), beta2_(spec.beta2), eps_(spec.eps) {
    OptimArguments a("muon", spec.arguments);
    momentum_ = a.number("momentum", 0.95), nesterov_ = a.flag("nesterov", true),
    iterations_ = static_cast<int64_t>(a.number("ns_steps", 5));
    a.done();
    require(rounding_ != Rounding::Stochastic, Fault::Usage,
            "--optimizer muon keeps f32 master weights; stochastic rounding is for the others");
  }

 private:
  void init(Slot& slot) const override {
    if (is_layer_matrix(*slot.param)) {
      slot.state["momentum_buffer"] = f32_zeros(slot);
    } else {
      slot.state["exp_avg"] = f32_zeros(slot);
      slot.state["exp_avg_sq"] = f32_zeros(slot);
    }
  }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    if (!is_layer_matrix(*slot.param)) return adamw(slot, param, grad, u, {beta1_, beta2_, eps_});
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      at::Tensor& buffer = slot.state.at("momentum_buffer").mul_(momentum_).add_(g);
      const at::Tensor direction = orthogonal(nesterov_ ? g.add(buffer, momentum_) : buffer, iterations_);
      const double size = 0.2 * std::sqrt(static_cast<double>(std::max(p.size(0), p.size(1))));
      p.mul_(1 - u.lr * u.weight_decay).add_(direction, -u.lr * size);
    });
  }
  double beta1_, beta2_, eps_, momentum_ = 0.95;
  bool nesterov_ = true;
  int64_t iterations_ = 5;
};

const RegisterOptimizer<Muon> muon("muon");

}  // namespace

}  // namespace apus
