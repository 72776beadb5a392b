// SPDX-License-Identifier: Apache-2.0
// APOLLO: gradients themselves are applied, each channel (or, APOLLO-Mini, the whole matrix) scaled as AdamW would
// scale it in a random space of few dimensions. The size of what is applied grows by 1 % an update at most (Fira's
// limiter). Embeddings, heads, vectors and stacked experts take AdamW.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "base/random.h"
#include "tensor/noise.h"
#include "train/gradient_space.h"
#include "train/optim_arguments.h"

namespace apus {
namespace {

class Apollo final : public Optimizer {
 public:
  Apollo(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("apollo_adamw", std::move(groups), spec.rounding),
        decay_{spec.beta1, spec.beta2, spec.eps},
        target_modules_(spec.target_modules) {
    OptimArguments a("apollo_adamw", spec.arguments);
    rank_ = static_cast<int64_t>(a.number("rank", 128)), gap_ = static_cast<int64_t>(a.number("update_proj_gap", 200));
    scale_ = a.number("scale", 1), by_channel_ = a.text("scale_type", "channel", {"channel", "tensor"}) == "channel";
    random_ = a.text("proj", "random", {"random", "svd"}) == "random";
    a.text("proj_type", "std", {"std"});
    a.done();
    require(rank_ > 0 && gap_ > 0 && scale_ > 0, Fault::Usage,
            "--optim apollo_adamw: rank, update_proj_gap and scale must be above 0");
  }

 private:
  GradientSpace space(const NamedParam& p) const { return {"std", p.tensor.size(0), p.tensor.size(1), rank_}; }

  void init(Slot& slot) const override {
    if (!is_among(*slot.param, target_modules_)) return begin_moments(slot, slot.param->tensor.sizes(), false);
    const GradientSpace space = this->space(*slot.param);
    const auto wide = slot.param->tensor.options().dtype(at::kFloat).requires_grad(false);
    begin_moments(slot, space.inside(), false);
    space.begin(slot.state, wide);
    slot.state["applied_norm"] = at::zeros({1}, wide);  // of the update before; 0: there was none
  }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    if (!is_among(*slot.param, target_modules_)) return adamw(slot, param, grad, u, decay_);
    const GradientSpace space = this->space(*slot.param);
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      if ((u.step - 1) % gap_ == 0) choose(slot, space, g, (u.step - 1) / gap_);
      const at::Tensor inside = space.into(g, GradientSpace::kept(slot.state));
      const at::Tensor& mean = slot.state.at("exp_avg").mul_(decay_.beta1).add_(inside, 1 - decay_.beta1);
      const at::Tensor& square =
          slot.state.at("exp_avg_sq").mul_(decay_.beta2).addcmul_(inside, inside, 1 - decay_.beta2);
      const at::Tensor direction = mean / square.sqrt().add_(decay_.eps);
      const at::Tensor applied = limited(slot, g * factor(direction, inside, p.size(0) >= p.size(1)));
      const auto step = static_cast<double>(u.step);
      const double corrected = std::sqrt(1 - std::pow(decay_.beta2, step)) / (1 - std::pow(decay_.beta1, step));
      p.add_(applied, -u.lr * corrected * std::sqrt(scale_)).mul_(1 - u.lr * u.weight_decay);
    });
  }

  void choose(Slot& slot, const GradientSpace& space, const at::Tensor& g, int64_t choice) const {
    if (!random_) return space.keep(slot.state, space.principal(g));
    constexpr uint64_t kStream = 0x61706f6c6c6f;
    at::Tensor& basis = slot.state.at(space.side() == GradientSide::Left ? "projector_left" : "projector_right");
    const uint64_t seed = mix(kStream, static_cast<uint64_t>(slot.index), static_cast<uint64_t>(choice));
    basis.copy_(normal_noise(basis.sizes(), 0, 1 / std::sqrt(static_cast<double>(space.rank())), seed));
  }

  // By how much AdamW changes the lengths in the space.
  at::Tensor factor(const at::Tensor& direction, const at::Tensor& inside, bool by_row) const {
    if (!by_channel_) return direction.norm() / (inside.norm() + 1e-8);
    const int64_t dim = by_row ? 1 : 0;
    return direction.norm(2, dim, true) / (inside.norm(2, dim, true) + 1e-8);
  }

  at::Tensor limited(Slot& slot, const at::Tensor& applied) const {
    constexpr double kGrowth = 1.01;
    at::Tensor& before = slot.state.at("applied_norm");
    const at::Tensor norm = applied.norm().view({1});
    const at::Tensor over = (norm / (before + 1e-8)).clamp_min(kGrowth) / kGrowth;
    const at::Tensor divisor = at::where(before > 0, over, at::ones_like(over));
    before.copy_(norm / divisor);
    return applied / divisor;
  }

  Decay decay_;
  std::vector<std::string> target_modules_;
  int64_t rank_, gap_;
  double scale_;
  bool by_channel_, random_;
};

const RegisterOptimizer<Apollo> apollo("apollo_adamw");

}  // namespace
}  // namespace apus
