// SPDX-License-Identifier: Apache-2.0
// AdamW: f32 moments in one fused pass; or 8-bit moments, or stochastic rounding, a cache-sized chunk at a time.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "base/error.h"
#include "ops/ops.h"
#include "train/dither.h"
#include "train/optimizer.h"

namespace apus {
namespace {

constexpr int64_t kBlock = 256;  // elements that share a scale in the 8-bit moments

// An 8-bit moment: value = map(code) * scale of its block. The maps spend most codes near zero: squares with a sign for
// the first moment, fourth powers for the second (whose root divides), rounded in proportion so that slow decay is not
// lost.
struct Moment8 {
  at::Tensor code, scale;  // [n] int8 or uint8; [ceil(n / kBlock)] f32
  bool is_signed;

  at::Tensor read() const {
    at::Tensor x = code.to(at::kFloat);
    x = is_signed ? x.div_(127).mul_(x.abs()) : x.div_(255).square_().square_();
    return spread(x, scale);
  }
  void write(const at::Tensor& value, const at::Tensor& threshold) {
    const int64_t n = value.numel(), whole = n / kBlock * kBlock;
    if (whole) scale.narrow(0, 0, whole / kBlock).copy_(value.narrow(0, 0, whole).view({-1, kBlock}).abs().amax(1));
    if (whole < n) scale.narrow(0, whole / kBlock, 1).copy_(value.narrow(0, whole, n - whole).abs().max());
    const at::Tensor inverse = scale.reciprocal().nan_to_num_(0, 0, 0);
    at::Tensor x = spread(value.clone(), inverse);
    if (is_signed) {
      const at::Tensor sign = x.sign();
      code.copy_(x.abs_().sqrt_().mul_(127).add_(threshold).floor_().clamp_(0, 127).mul_(sign));
    } else {
      // The threshold decides, but a positive value never becomes zero: it divides.
      const at::Tensor least = x.gt(0);
      code.copy_(
          x.clamp_(0, 1).sqrt_().sqrt_().mul_(255).add_(threshold).floor_().clamp_(0, 255).max(least.to(at::kFloat)));
    }
  }

 private:
  static at::Tensor spread(at::Tensor x, const at::Tensor& scale) {  // in place: x times its block's scale
    const int64_t n = x.numel(), whole = n / kBlock * kBlock;
    if (whole) x.narrow(0, 0, whole).view({-1, kBlock}).mul_(scale.narrow(0, 0, whole / kBlock).unsqueeze(1));
    if (whole < n) x.narrow(0, whole, n - whole).mul_(scale.narrow(0, whole / kBlock, 1));
    return x;
  }
};

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerSpec& spec, std::vector<ParamGroup> groups, bool states_8bit)
      : Optimizer(states_8bit ? "adamw_8bit" : "adamw", std::move(groups), spec.rounding),
        beta1_(spec.beta1),
        beta2_(spec.beta2),
        eps_(spec.eps),
        small_(states_8bit) {}

 private:
  void init(Slot& slot) const override {
    const at::Tensor& p = slot.param->tensor;
    if (!small_) {
      slot.state["exp_avg"] = at::zeros_like(p, p.options().dtype(at::kFloat).requires_grad(false));
      slot.state["exp_avg_sq"] = at::zeros_like(p, p.options().dtype(at::kFloat).requires_grad(false));
      return;
    }
    const int64_t n = p.numel(), blocks = (n + kBlock - 1) / kBlock;
    const auto options = p.options().requires_grad(false);
    slot.state["exp_avg"] = at::zeros({n}, options.dtype(at::kChar));
    slot.state["exp_avg_sq"] = at::zeros({n}, options.dtype(at::kByte));
    slot.state["exp_avg_scale"] = at::zeros({blocks}, options.dtype(at::kFloat));
    slot.state["exp_avg_sq_scale"] = at::zeros({blocks}, options.dtype(at::kFloat));
  }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    if (small_ || (rounding_ == Rounding::Stochastic && param.scalar_type() != at::kFloat))
      return chunked(slot, param, grad, u);
    adamw(slot, param, grad, u, {beta1_, beta2_, eps_});
  }

  // The same arithmetic as ops::adamw, over chunks of kDitherChunk elements.
  void chunked(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const {
    require(param.is_contiguous(), Fault::Bug, slot.param->name, " is not contiguous");
    const at::Tensor flat_grad = grad.contiguous().view(-1);
    at::Tensor flat = param.view(-1), master = keeps_master(param) ? slot.state.at("master").view(-1) : at::Tensor();
    const double correction1 = 1 - std::pow(beta1_, static_cast<double>(u.step)),
                 correction2 = std::sqrt(1 - std::pow(beta2_, static_cast<double>(u.step)));
    for (int64_t at = 0, chunk = 0; at < flat.numel(); at += kDitherChunk, ++chunk) {
      const int64_t count = std::min(kDitherChunk, flat.numel() - at);
      const auto part = [&](const at::Tensor& t) { return t.view(-1).narrow(0, at, count); };
      const auto blocks = [&](const at::Tensor& t) { return t.narrow(0, at / kBlock, (count + kBlock - 1) / kBlock); };
      Moment8 m8{small_ ? part(slot.state.at("exp_avg")) : at::Tensor(),
                 small_ ? blocks(slot.state.at("exp_avg_scale")) : at::Tensor(), true};
      Moment8 v8{small_ ? part(slot.state.at("exp_avg_sq")) : at::Tensor(),
                 small_ ? blocks(slot.state.at("exp_avg_sq_scale")) : at::Tensor(), false};
      at::Tensor m = small_ ? m8.read() : part(slot.state.at("exp_avg")),
                 v = small_ ? v8.read() : part(slot.state.at("exp_avg_sq"));
      const at::Tensor g = part(flat_grad).to(at::kFloat) * u.grad_scale;
      m.mul_(beta1_).add_(g, 1 - beta1_);
      v.mul_(beta2_).addcmul_(g, g, 1 - beta2_);
      at::Tensor target = part(flat), wide = master.defined() ? part(master) : target.to(at::kFloat);
      wide.mul_(1 - u.lr * u.weight_decay).addcdiv_(m, v.sqrt().div_(correction2).add_(eps_), -u.lr / correction1);
      if (target.scalar_type() != at::kFloat) {
        if (rounding_ == Rounding::Stochastic)
          round_stochastic_(target, wide, slot.index + chunk, u.step);
        else
          target.copy_(wide);
      }
      if (small_) {
        m8.write(m, dither(count, 2 * slot.index, chunk, u.step, flat.device()));
        v8.write(v, dither(count, 2 * slot.index + 1, chunk, u.step, flat.device()));
      }
    }
  }

  double beta1_, beta2_, eps_;
  bool small_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerSpec& spec, std::vector<ParamGroup> groups, bool states_8bit) {
  for (const auto& [key, value] : spec.arguments)
    fail(Fault::Usage, "--optim_args: AdamW has no '", key,
         "'; its numbers are --adam_beta1, --adam_beta2, --adam_epsilon");
  return std::make_unique<AdamW>(spec, std::move(groups), states_8bit);
}

}  // namespace apus
