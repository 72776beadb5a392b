// SPDX-License-Identifier: Apache-2.0
// RMS norm, alone and after the residual addition, and their gradients.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "ops/op.h"

namespace apus::cuda {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Forward = at::Tensor(const at::Tensor&, const at::Tensor&, double);
using Backward = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool);
using AddForward = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, double);
using AddBackward = Pair(const OptionalTensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool);

bool takes(const at::Tensor& x, const at::Tensor& weight) {
  return is_narrow_or_float(x.scalar_type()) && weight.scalar_type() == x.scalar_type() && weight.is_contiguous() &&
         in_packs(weight) && x.numel() > 0;
}

// Threads of a row, rows of a block.
struct Rows {
  explicit Rows(const at::Tensor& x) : size(x.size(-1)), count(x.numel() / size) {
    const int64_t packs = size / pack_of(x), wanted = (packs + 31) / 32 * 32;
    block.x = std::clamp<int64_t>(wanted, 32, 512);
    block.y = block.x == 32 ? 4 : 1;
    grid.x = (count + block.y - 1) / block.y;
  }
  int64_t size, count;
  Extent block, grid;
};

at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

void launch_forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, const at::Tensor& sum,
                    const at::Tensor& y, double eps) {
  static const TypedKernel kernel("rms_norm", "forward");
  const Rows rows(x);
  kernel.of(x.scalar_type())(rows.grid, rows.block, address(x), address(delta), address(weight), address(sum),
                             address(y), rows.count, static_cast<int>(rows.size), static_cast<float>(eps));
}

at::Tensor forward(const at::Tensor& x_in, const at::Tensor& weight, double eps) {
  const at::Tensor x = x_in.contiguous();
  if (!takes(x, weight) || !in_packs(x)) {
    static const auto reference = ops::handle<Forward>("apus::rms_norm");
    return ops::call_reference(reference, x_in, weight, eps);
  }
  const at::Tensor y = like(x);
  launch_forward(x, {}, weight, {}, y, eps);
  return y;
}

Pair add_forward(const at::Tensor& x_in, const at::Tensor& delta_in, const at::Tensor& weight, double eps) {
  const at::Tensor x = x_in.contiguous(), delta = delta_in.contiguous();
  if (!takes(x, weight) || !in_packs(x) || !in_packs(delta) || delta.scalar_type() != x.scalar_type() ||
      delta.sizes() != x.sizes()) {
    static const auto reference = ops::handle<AddForward>("apus::add_rms_norm");
    return ops::call_reference(reference, x_in, delta_in, weight, eps);
  }
  const at::Tensor sum = like(x), y = like(x);
  launch_forward(x, delta, weight, sum, y, eps);
  return {sum, y};
}

Pair gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& grad_sum,
               double eps, bool need_weight) {
  static const TypedKernel kernel("rms_norm", "backward"), of_weight("rms_norm", "weight_gradient");
  const Rows rows(x);
  const int size = static_cast<int>(rows.size);
  const at::Tensor dx = like(x);
  const at::TensorOptions wide = x.options().dtype(at::kFloat);
  const at::Tensor inverses = need_weight ? at::empty({rows.count}, wide) : at::Tensor();
  kernel.of(x.scalar_type())(rows.grid, rows.block, address(grad), address(x), address(weight), address(grad_sum),
                             address(dx), address(inverses), rows.count, size, static_cast<float>(eps));
  if (!need_weight) return {dx, at::Tensor()};
  constexpr int64_t kThreads = 128, kRowsEach = 32;
  const int64_t parts = std::clamp<int64_t>(rows.count / kRowsEach, 1, 256), each = kThreads * pack_of(x);
  const at::Tensor sums = at::empty({parts, rows.size}, wide);
  of_weight.of(x.scalar_type())(Extent{(rows.size + each - 1) / each, parts, 1}, Extent{kThreads, 1, 1}, address(grad),
                                address(x), address(inverses), address(sums), rows.count, size);
  return {dx, sums.sum(0).to(weight.scalar_type())};
}

bool takes_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight) {
  return takes(x, weight) && in_packs(x) && in_packs(grad) && grad.scalar_type() == x.scalar_type();
}

Pair backward(const at::Tensor& grad_in, const at::Tensor& x_in, const at::Tensor& weight, double eps,
              bool need_weight) {
  const at::Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  if (!takes_gradient(grad, x, weight)) {
    static const auto reference = ops::handle<Backward>("apus::rms_norm_backward");
    return ops::call_reference(reference, grad_in, x_in, weight, eps, need_weight);
  }
  return gradients(grad, x, weight, {}, eps, need_weight);
}

Pair add_backward(const OptionalTensor& grad_sum_in, const at::Tensor& grad_in, const at::Tensor& sum_in,
                  const at::Tensor& weight, double eps, bool need_weight) {
  const at::Tensor grad = grad_in.contiguous(), sum = sum_in.contiguous(),
                   grad_sum = grad_sum_in.has_value() ? grad_sum_in->contiguous() : at::Tensor();
  if (!takes_gradient(grad, sum, weight) ||
      (grad_sum.defined() && (grad_sum.scalar_type() != sum.scalar_type() || !in_packs(grad_sum)))) {
    static const auto reference = ops::handle<AddBackward>("apus::add_rms_norm_backward");
    return ops::call_reference(reference, grad_sum_in, grad_in, sum_in, weight, eps, need_weight);
  }
  return gradients(grad, sum, weight, grad_sum, eps, need_weight);
}

}  // namespace

std::vector<OwnOp> norm_ops() {
  return {own<forward>("rms_norm", kOwnKernel), own<backward>("rms_norm_backward", kOwnKernel),
          own<add_forward>("add_rms_norm", kOwnKernel), own<add_backward>("add_rms_norm_backward", kOwnKernel)};
}

}  // namespace apus::cuda
