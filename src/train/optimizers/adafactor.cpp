// SPDX-License-Identifier: Apache-2.0
// Adafactor with the settings of HuggingFace's Trainer (given learning rate, no relative step): the second moment of a
// matrix is kept as one row and one column.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

double rms(const at::Tensor& x) { return std::sqrt(x.square().mean().item<double>()); }

class Adafactor final : public Optimizer {
 public:
  Adafactor(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("adafactor", std::move(groups), spec.rounding) {
    OptimArguments a("adafactor", spec.arguments);
    eps_ = a.number("eps1", 1e-30), scale_eps_ = a.number("eps2", 1e-3), clip_ = a.number("clip_threshold", 1),
    decay_ = a.number("decay_rate", -0.8);
    beta1_ = a.number("beta1", 0), scale_parameter_ = a.flag("scale_parameter", false);
    a.done();
  }

 private:
  void init(Slot& slot) const override {
    const at::Tensor& p = slot.param->tensor;
    const auto options = p.options().dtype(at::kFloat).requires_grad(false);
    if (p.dim() >= 2) {
      std::vector<int64_t> row = p.sizes().vec(), column = row;
      row.pop_back();
      column.erase(column.end() - 2);
      slot.state["exp_avg_sq_row"] = at::zeros(row, options);
      slot.state["exp_avg_sq_col"] = at::zeros(column, options);
    } else {
      slot.state["exp_avg_sq"] = f32_zeros(slot);
    }
    if (beta1_ > 0) slot.state["exp_avg"] = f32_zeros(slot);
  }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      const double lr = u.lr * (scale_parameter_ ? std::max(scale_eps_, rms(p)) : 1);
      at::Tensor d = scaled_gradient(slot, g, u);
      d.div_(std::max(1.0, rms(d) / clip_)).mul_(lr);
      if (beta1_ > 0) d = slot.state.at("exp_avg").mul_(beta1_).add_(d, 1 - beta1_);
      if (u.weight_decay != 0) p.mul_(1 - u.weight_decay * lr);
      p.sub_(d);
    });
  }

  at::Tensor scaled_gradient(Slot& slot, const at::Tensor& g, const Update& u) const {
    const double beta2 = 1 - std::pow(static_cast<double>(u.step), decay_);
    const at::Tensor square = g.square().add_(eps_);
    if (g.dim() < 2) return slot.state.at("exp_avg_sq").mul_(beta2).add_(square, 1 - beta2).rsqrt().mul_(g);
    at::Tensor& row = slot.state.at("exp_avg_sq_row").mul_(beta2).add_(square.mean(-1), 1 - beta2);
    at::Tensor& column = slot.state.at("exp_avg_sq_col").mul_(beta2).add_(square.mean(-2), 1 - beta2);
    return (row / row.mean(-1, true)).rsqrt_().unsqueeze(-1) * column.rsqrt().unsqueeze(-2) * g;
  }

  double eps_, scale_eps_, clip_, decay_, beta1_;
  bool scale_parameter_;
};

const RegisterOptimizer<Adafactor> adafactor("adafactor");

}  // namespace

}  // namespace apus
