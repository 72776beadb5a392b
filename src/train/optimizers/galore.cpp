// SPDX-License-Identifier: Apache-2.0
// GaLore: AdamW whose moments are of the gradient in the space of its first singular vectors, which is chosen anew
// every update_proj_gap updates. Embeddings, heads, vectors and stacked experts take AdamW as it is. With cos_threshold
// (Q-GaLore) a space that has hardly turned, by the mean over queue_size choices, is kept gamma_proj times as long.
#include <ATen/TensorOperators.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "ops/ops.h"
#include "train/gradient_space.h"
#include "train/optim_arguments.h"

namespace apus {
namespace {

template <bool kSmall>
class Galore final : public Optimizer {
 public:
  Galore(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer(kSmall ? "galore_adamw_8bit" : "galore_adamw", std::move(groups), spec.rounding),
        decay_{spec.beta1, spec.beta2, spec.eps},
        target_modules_(spec.target_modules) {
    OptimArguments a(kind(), spec.arguments);
    rank_ = static_cast<int64_t>(a.number("rank", 128)), gap_ = static_cast<int64_t>(a.number("update_proj_gap", 200));
    scale_ = a.number("scale", 0.25), type_ = a.text("proj_type", "std", gradient_sides());
    threshold_ = a.number("cos_threshold", 2), growth_ = a.number("gamma_proj", 2);
    queue_ = static_cast<int64_t>(a.number("queue_size", 5));
    a.done();
    require(rank_ > 0 && gap_ > 0 && growth_ >= 1 && queue_ > 0, Fault::Usage, "--optim ", kind(),
            ": rank, update_proj_gap and queue_size must be above 0, gamma_proj 1 or more");
    require(!adapts() || type_ != "full", Fault::Usage, "--optim ", kind(), ": cos_threshold with proj_type full is ",
            "not available; use std");
  }

 private:
  bool adapts() const { return threshold_ <= 1; }
  GradientSpace space(const NamedParam& p) const { return {type_, p.tensor.size(0), p.tensor.size(1), rank_}; }

  void init(Slot& slot) const override {
    if (!is_among(*slot.param, target_modules_)) return begin_moments(slot, slot.param->tensor.sizes(), kSmall);
    const GradientSpace space = this->space(*slot.param);
    begin_moments(slot, space.inside(), kSmall);
    space.begin(slot.state, slot.param->tensor.options().requires_grad(false).dtype(at::kFloat));
    if (!adapts()) return;
    // Updates from one choice to the next, how many choices were compared, and the last cosines.
    at::Tensor& ages = slot.state["projector_ages"] = at::zeros({2 + queue_}, at::TensorOptions(at::kFloat));
    ages[0] = static_cast<double>(gap_);
  }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    if (!is_among(*slot.param, target_modules_)) return adamw(slot, param, grad, u, decay_);
    const GradientSpace space = this->space(*slot.param);
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      if (due(slot, u.step)) choose(slot, space, g);
      const GradientSpace::Basis basis = GradientSpace::kept(slot.state);
      // AdamW's step there, taken from 0.
      const at::Tensor inside = space.into(g, basis);
      at::Tensor step = at::zeros(inside.sizes(), inside.options());
      at::Tensor none;
      moments_step(slot, step, inside, none,
                   {.lr = 1,
                    .beta1 = decay_.beta1,
                    .beta2 = decay_.beta2,
                    .eps = decay_.eps,
                    .weight_decay = 0,
                    .step = u.step,
                    .grad_scale = 1,
                    .dither = 0,
                    .stochastic = false});
      p.add_(space.back(step, basis), u.lr * scale_);
      if (u.weight_decay != 0) p.mul_(1 - u.lr * u.weight_decay);
    });
  }

  bool due(Slot& slot, int64_t step) const {
    const int64_t gap =
        adapts() ? static_cast<int64_t>(slot.state.at("projector_ages")[0].template item<float>()) : gap_;
    return (step - 1) % gap == 0;
  }

  void choose(Slot& slot, const GradientSpace& space, const at::Tensor& g) const {
    const GradientSpace::Basis next = space.principal(g);
    if (adapts()) {
      const auto first = [&](const GradientSpace::Basis& basis) {
        return space.side() != GradientSide::Left ? basis.right.select(0, 0) : basis.left.select(1, 0);
      };
      compare(slot.state.at("projector_ages"), first(GradientSpace::kept(slot.state)), first(next));
    }
    space.keep(slot.state, next);
  }

  // Vectors of length 1; of length 0 before the first choice.
  void compare(at::Tensor& ages, const at::Tensor& before, const at::Tensor& after) const {
    if (before.norm().template item<double>() == 0) return;
    const auto compared = static_cast<int64_t>(ages[1].template item<float>());
    ages[2 + compared % queue_] = before.dot(after).template item<double>();
    ages[1] += 1;
    if (compared + 1 >= queue_ && ages.narrow(0, 2, queue_).mean().template item<double>() >= threshold_)
      ages[0] = static_cast<double>(static_cast<int64_t>(ages[0].template item<double>() * growth_));
  }

  Decay decay_;
  std::vector<std::string> target_modules_;
  int64_t rank_, gap_, queue_;
  double scale_, threshold_, growth_;
  std::string type_;
};

const RegisterOptimizer<Galore<false>> galore("galore_adamw");
const RegisterOptimizer<Galore<true>> galore_8bit("galore_adamw_8bit");

}  // namespace
}  // namespace apus
