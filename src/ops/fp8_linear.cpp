// SPDX-License-Identifier: Apache-2.0
#include "ops/fp8_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

struct Fp8Limits {
  int mantissa;        // bits
  int least_exponent;  // of numbers with all bits of the mantissa
  double most;
};
Fp8Limits limits(Fp8Type type) { return type == Fp8Type::E4m3 ? Fp8Limits{3, -6, 448} : Fp8Limits{2, -14, 57344}; }

// 2 to whole numbers, exactly.
at::Tensor power_of_two(const at::Tensor& exponent) {
  return at::ldexp(at::ones_like(exponent, exponent.options().dtype(at::kFloat)), exponent);
}

// The power of two by which blocks whose largest magnitudes are these are divided, so that none is above `most`.
at::Tensor block_scale(const at::Tensor& largest, double most) {
  const auto [share, exponent] = at::frexp(largest / most);  // share from 0.5 to below 1
  const at::Tensor up = exponent - share.le(0.5).to(exponent.scalar_type());
  return at::where(largest.gt(0), power_of_two(up), at::ones_like(largest));
}

// x over its blocks' scales, rounded, and times them again. Blocks of rows x columns; what is beyond the edge is 0.
at::Tensor in_blocks(const at::Tensor& x_RK, Fp8Type type, int64_t rows, int64_t columns) {
  const int64_t R = x_RK.size(0), K = x_RK.size(1);
  const int64_t more_rows = (rows - R % rows) % rows, more_columns = (columns - K % columns) % columns;
  const at::Tensor wide = at::constant_pad_nd(x_RK.to(at::kFloat), {0, more_columns, 0, more_rows})
                              .reshape({(R + more_rows) / rows, rows, (K + more_columns) / columns, columns});
  const at::Tensor scale = block_scale(wide.abs().amax({1, 3}, /*keepdim=*/true), limits(type).most);
  const at::Tensor rounded = rounded_to_fp8(wide / scale, type) * scale;
  return rounded.reshape({R + more_rows, K + more_columns}).narrow(0, 0, R).narrow(1, 0, K).to(x_RK.scalar_type());
}

at::Tensor scaled(const at::Tensor& product, const Fp8Numbers& a, const Fp8Numbers& b) {
  return a.scale.defined() ? (product * (a.scale * b.scale)).to(product.scalar_type()) : product;
}

// One matrix' part in a product of rows in runs.
struct Run {
  int64_t matrix, begin, size;
};
std::vector<Run> runs_of(const std::vector<int64_t>& count) {
  std::vector<Run> runs;
  int64_t begin = 0;
  for (size_t e = 0; e < count.size(); begin += count[e++])
    if (count[e] > 0) runs.push_back({static_cast<int64_t>(e), begin, count[e]});
  return runs;
}

// A result from an earlier run; wrapped, as it is no input that a gradient could belong to.
struct Known {
  at::Tensor y;
};

struct Fp8Node : torch::autograd::Function<Fp8Node> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* ctx, const at::Tensor& x_MI, const at::Tensor& weight_EOI, const Known& known,
                            const std::vector<int64_t>& count, const Fp8Recipe& recipe) {
    const BelowAutograd guard;
    ctx->save_for_backward({weight_EOI.requires_grad() ? x_MI : at::Tensor(), weight_EOI});
    ctx->saved_data["count"] = count;
    ctx->saved_data["recipe"] = static_cast<int64_t>(recipe.scale);
    ctx->saved_data["wide"] = recipe.gradients == Fp8Type::E5m2;
    return known.y.defined() ? known.y : product(x_MI, weight_EOI, count, recipe);
  }

  static at::Tensor product(const at::Tensor& x_MI, const at::Tensor& weight_EOI, const std::vector<int64_t>& count,
                            const Fp8Recipe& recipe) {
    at::Tensor y_MO = at::empty({x_MI.size(0), weight_EOI.size(1)}, x_MI.options());
    for (const Run& run : runs_of(count)) {
      const Fp8Numbers x = to_fp8(x_MI.narrow(0, run.begin, run.size), Fp8Type::E4m3, recipe.scale, false),
                       w = to_fp8(weight_EOI[run.matrix], Fp8Type::E4m3, recipe.scale, true);
      y_MO.narrow(0, run.begin, run.size).copy_(scaled(linear(x.numbers, w.numbers, {}), x, w));
    }
    return y_MO;
  }

  // dx sums over outputs, dw over rows: what is rounded in blocks along the sum is rounded anew for each.
  static torch::autograd::variable_list backward(Context* ctx, torch::autograd::variable_list grads) {
    const BelowAutograd guard;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x_MI = saved[0], &weight_EOI = saved[1], &grad_MO = grads[0];
    const auto scale = static_cast<Fp8Recipe::Scale>(ctx->saved_data["recipe"].toInt());
    const Fp8Type type = ctx->saved_data["wide"].toBool() ? Fp8Type::E5m2 : Fp8Type::E4m3;
    at::Tensor dx_MI, dw_EOI;
    if (ctx->needs_input_grad(0)) dx_MI = at::empty({grad_MO.size(0), weight_EOI.size(2)}, grad_MO.options());
    if (ctx->needs_input_grad(1)) dw_EOI = at::zeros(weight_EOI.sizes(), grad_MO.options());
    for (const Run& run : runs_of(ctx->saved_data["count"].toIntVector())) {
      const at::Tensor grad_nO = grad_MO.narrow(0, run.begin, run.size);
      if (dx_MI.defined()) {
        const Fp8Numbers g = to_fp8(grad_nO, type, scale, false),
                         w = to_fp8(weight_EOI[run.matrix].t(), Fp8Type::E4m3, scale, true);
        dx_MI.narrow(0, run.begin, run.size).copy_(scaled(linear(g.numbers, w.numbers, {}), g, w));
      }
      if (dw_EOI.defined()) {
        const Fp8Numbers g = to_fp8(grad_nO.t(), type, scale, false),
                         x = to_fp8(x_MI.narrow(0, run.begin, run.size).t(), Fp8Type::E4m3, scale, false);
        dw_EOI[run.matrix].copy_(scaled(linear(g.numbers, x.numbers, {}), g, x));
      }
    }
    return {dx_MI, dw_EOI, {}, {}, {}};
  }
};

at::Tensor grouped(const at::Tensor& x_MI, const at::Tensor& weight_EOI, const at::Tensor& known,
                   const std::vector<int64_t>& count, const Fp8Recipe& recipe) {
  if (any_requires_grad(x_MI, weight_EOI)) return Fp8Node::apply(x_MI, weight_EOI, Known{known}, count, recipe);
  const BelowAutograd guard;
  return known.defined() ? known : Fp8Node::product(x_MI, weight_EOI, count, recipe);
}

}  // namespace

at::Tensor rounded_to_fp8(const at::Tensor& x, Fp8Type type) {
  const Fp8Limits l = limits(type);
  const at::Tensor wide = x.to(at::kFloat).clamp(-l.most, l.most);
  const auto [share, exponent] = at::frexp(wide);  // wide = share 2^exponent, share from 0.5 to below 1
  const at::Tensor step = power_of_two((exponent - 1).clamp_min(l.least_exponent) - l.mantissa);
  return (wide / step).round_().mul_(step).clamp_(-l.most, l.most);
}

Fp8Numbers to_fp8(const at::Tensor& x_RK, Fp8Type type, Fp8Recipe::Scale scale, bool square) {
  if (scale == Fp8Recipe::Scale::Block) return {in_blocks(x_RK, type, square ? 128 : 1, 128), {}};
  if (scale == Fp8Recipe::Scale::Mx) return {in_blocks(x_RK, type, 1, 32), {}};
  const at::Tensor wide = x_RK.to(at::kFloat),
                   largest = wide.numel() ? wide.abs().amax() : at::zeros({}, wide.options());
  const at::Tensor unit = at::where(largest.gt(0), largest / limits(type).most, at::ones_like(largest));
  return {rounded_to_fp8(wide / unit, type).to(x_RK.scalar_type()), unit};
}

at::Tensor fp8_linear(const at::Tensor& x_TD, const at::Tensor& weight_OD, const at::Tensor& bias_O,
                      const Fp8Recipe& recipe, const at::Tensor& known) {
  const at::Tensor x_MI = x_TD.reshape({-1, x_TD.size(-1)});
  at::Tensor y_MO = grouped(x_MI, weight_OD.unsqueeze(0),
                            known.defined() && !bias_O.defined() ? known.view({x_MI.size(0), -1}) : at::Tensor(),
                            {x_MI.size(0)}, recipe);
  std::vector<int64_t> sizes = x_TD.sizes().vec();
  sizes.back() = weight_OD.size(0);
  y_MO = y_MO.view(sizes);
  return bias_O.defined() ? y_MO + bias_O : y_MO;
}

at::Tensor fp8_grouped_linear(const at::Tensor& x_MI, const at::Tensor& weight_EOI, const std::vector<int64_t>& count,
                              const Fp8Recipe& recipe) {
  return grouped(x_MI, weight_EOI, {}, count, recipe);
}

}  // namespace apus::ops
