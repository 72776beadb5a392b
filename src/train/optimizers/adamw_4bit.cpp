// SPDX-License-Identifier: Apache-2.0
// AdamW with moments of half a byte each, as torchao has it: value = table[code] * scale, where 128 elements share a
// scale, their largest value; codes are the nearest. The table of the first moment is dense near zero; that of the
// second is even and has no zero, since its root divides.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "tensor/dither.h"
#include "train/optim_arguments.h"
#include "train/optimizer.h"

namespace apus {
namespace {

constexpr int64_t kBlock = 128;  // elements of a scale

at::Tensor signed_table(at::Device device) {
  static const std::vector<float> table = {-0.8875F, -0.6625F, -0.4375F, -0.2125F, -0.0775F, -0.0325F, -0.0055F, 0,
                                           0.0055F,  0.0325F,  0.0775F,  0.2125F,  0.4375F,  0.6625F,  0.8875F,  1};
  return at::tensor(table).to(device);
}
at::Tensor even_table(at::Device device) {
  return at::linspace(1.0 / 16, 1, 16, at::TensorOptions().device(device).dtype(at::kFloat));
}

// Codes [n / 2], the first of two in the upper half, and scales [n / 128] -> f32 [n].
at::Tensor read(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& table) {
  const at::Tensor both = at::stack({codes.bitwise_right_shift(4), codes.bitwise_and(15)}, -1).view(-1);
  return table.index_select(0, both.to(at::kLong)).view({-1, kBlock}).mul_(scales.unsqueeze(1)).view(-1);
}

void write(at::Tensor codes, at::Tensor scales, const at::Tensor& values, const at::Tensor& table) {
  const at::Tensor blocks = values.view({-1, kBlock});
  scales.copy_(blocks.abs().amax(1).clamp_min_(1e-12));
  const at::Tensor between = (table.narrow(0, 0, 15) + table.narrow(0, 1, 15)).mul_(0.5);
  const at::Tensor nearest = at::bucketize(blocks / scales.unsqueeze(1), between).to(at::kByte).view({-1, 2});
  codes.copy_(nearest.select(1, 0).bitwise_left_shift(4).bitwise_or(nearest.select(1, 1)));
}

class AdamW4 final : public Optimizer {
 public:
  AdamW4(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("adamw_4bit", std::move(groups), spec.rounding), decay_{spec.beta1, spec.beta2, spec.eps} {
    OptimArguments("adamw_4bit", spec.arguments).done();
  }

 private:
  void init(Slot& slot) const override {
    const at::Tensor& p = slot.param->tensor;
    const int64_t blocks = (p.numel() + kBlock - 1) / kBlock;
    const auto options = p.options().requires_grad(false);
    for (const char* name : {"exp_avg", "exp_avg_sq"}) {
      slot.state[name] = at::zeros({blocks * kBlock / 2}, options.dtype(at::kByte));
      slot.state[str(name, "_scale")] = at::zeros({blocks}, options.dtype(at::kFloat));  // 0 whatever the codes
    }
  }

  // A cache's worth at a time, so that nothing is ever held wide.
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    const at::Tensor mean_table = signed_table(param.device()), square_table = even_table(param.device());
    const at::Tensor gradient = grad.contiguous().view(-1);
    const auto steps = static_cast<double>(u.step);
    const double root = std::sqrt(1 - std::pow(decay_.beta2, steps)), size = u.lr / (1 - std::pow(decay_.beta1, steps));
    for (int64_t begin = 0; begin < param.numel(); begin += kDitherChunk) {
      const int64_t n = std::min(kDitherChunk, param.numel() - begin), blocks = (n + kBlock - 1) / kBlock;
      const auto codes = [&](const char* name) {
        return slot.state.at(name).narrow(0, begin / 2, blocks * kBlock / 2);
      };
      const auto scales = [&](const char* name) {
        return slot.state.at(str(name, "_scale")).narrow(0, begin / kBlock, blocks);
      };
      at::Tensor g = gradient.narrow(0, begin, n).to(at::kFloat) * u.grad_scale;
      if (blocks * kBlock > n) g = at::constant_pad_nd(g, {0, blocks * kBlock - n});
      const at::Tensor mean = read(codes("exp_avg"), scales("exp_avg"), mean_table).lerp_(g, 1 - decay_.beta1);
      const at::Tensor square = read(codes("exp_avg_sq"), scales("exp_avg_sq"), square_table)
                                    .mul_(decay_.beta2)
                                    .addcmul_(g, g, 1 - decay_.beta2);
      const at::Tensor step = (mean / square.sqrt().div_(root).add_(decay_.eps)).narrow(0, 0, n);
      change_part(slot, param, begin, n, u,
                  [&](at::Tensor& p) { p.mul_(1 - u.lr * u.weight_decay).add_(step, -size); });
      write(codes("exp_avg"), scales("exp_avg"), mean, mean_table);
      write(codes("exp_avg_sq"), scales("exp_avg_sq"), square, square_table);
    }
  }

  // As change_in_f32(), of elements [begin, begin + n).
  template <class Change>
  void change_part(Slot& slot, const at::Tensor& param, int64_t begin, int64_t n, const Update& u,
                   const Change& change) const {
    at::Tensor target = param.view(-1).narrow(0, begin, n);
    at::Tensor wide =
        keeps_master(param) ? slot.state.at("master").view(-1).narrow(0, begin, n) : target.to(at::kFloat);
    change(wide);
    if (rounding_ == Rounding::Stochastic && target.scalar_type() == at::kBFloat16)
      round_stochastic_(target, wide, advanced(dither_of(slot, u.step), begin));
    else if (!target.is_same(wide))
      target.copy_(wide);
  }

  Decay decay_;
};

const RegisterOptimizer<AdamW4> adamw_4bit("adamw_4bit");

}  // namespace
}  // namespace apus
